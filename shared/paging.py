"""Pages by keyset: a token is where the last page ended, sealed and bound to its tenant, list and filter."""

import base64
import hashlib
from dataclasses import dataclass
from uuid import UUID

from shared.errors import PageTokenInvalid, RequestInvalid, Violation
from shared.vault import SealBroken, Vault

DEFAULT_SIZE = 50
MAX_SIZE = 1_000

# Ids ascend with time, so the newest page begins below the greatest of them.
NEWEST = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Page:
    """At most `size` rows with an id below `before`."""

    size: int
    before: UUID = NEWEST


class Pages:
    """Makes and reads the tokens of one kind of list."""

    def __init__(self, secret_key: bytes, kind: str) -> None:
        self._vault = Vault(secret_key, f"page token {kind}")

    def read(self, tenant: str, filter_: bytes, size: int, token: str) -> Page:
        """The page that a request asks for. Raises RequestInvalid, PageTokenInvalid."""
        if size < 0:
            raise RequestInvalid([Violation("page_size", "must not be negative")])
        return Page(min(size or DEFAULT_SIZE, MAX_SIZE), self.place(tenant, filter_, token) or NEWEST)

    def place(self, tenant: str, filter_: bytes, token: str) -> UUID | None:
        """Where the last page, or call, ended; None without a token. Raises PageTokenInvalid."""
        if not token:
            return None
        try:
            return UUID(bytes=self._vault.open(_decoded(token), bound_to=_binding(tenant, filter_)))
        except (SealBroken, ValueError):
            raise PageTokenInvalid from None

    def token(self, tenant: str, filter_: bytes, end: UUID) -> str:
        """For what comes next where this one ended."""
        sealed = self._vault.seal(end.bytes, bound_to=_binding(tenant, filter_))
        return _encoded(sealed)


def _encoded(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode()


def _decoded(token: str) -> bytes:
    """Raises ValueError."""
    sealed = base64.urlsafe_b64decode(token)
    if _encoded(sealed) != token:  # the decoder passes over what is not of its alphabet
        raise ValueError("not as it was made")
    return sealed


def _binding(tenant: str, filter_: bytes) -> bytes:
    return hashlib.sha256(tenant.encode() + b"\0" + filter_).digest()
