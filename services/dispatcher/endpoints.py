"""Endpoints: what may be named as one, and naming, listing and forgetting them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from yarl import URL

from services.dispatcher import signature
from services.dispatcher.egress import Egress
from services.dispatcher.keys import Keys
from shared.errors import QuotaExceeded, RequestInvalid, ResourceNotFound, Violation
from shared.paging import Page

EVENT_TYPES = frozenset(
    f"notification.{status}" for status in ("sent", "failed", "dead_lettered", "expired", "suppressed", "cancelled")
)
MAX_URL = 2048
MAX_DESCRIPTION = 255

# Parsers drop some of these without a word, so that what is checked is not what was written.
UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(\.{LABEL})*\.?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Draft:
    """An endpoint as a caller describes it."""

    url: str
    event_types: Sequence[str] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    id: UUID
    url: str
    event_types: Sequence[str]
    description: str
    enabled: bool
    disabled_reason: str | None
    created_at: datetime


class Store(Protocol):
    async def new_endpoint_id(self) -> UUID: ...
    async def insert_endpoint(
        self, endpoint_id: UUID, tenant: str, draft: Draft, sealed: bytes, *, configured: bool, most: int | None
    ) -> Endpoint | None: ...
    async def list_endpoints(self, tenant: str, before: UUID, limit: int) -> Sequence[Endpoint]: ...
    async def delete_endpoint(self, tenant: str, endpoint_id: UUID) -> bool: ...


class Endpoints:
    """`most` are the endpoints that a tenant may have: each event is written once for each of them."""

    def __init__(
        self, store: Store, keys: Keys, egress: Egress, *, most: int, on_deleted: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._keys = keys
        self._egress = egress
        self._most = most
        self._on_deleted = on_deleted

    async def create(self, tenant: str, draft: Draft) -> tuple[Endpoint, str]:
        """The endpoint, and its secret, which is not to be had again. Raises RequestInvalid, QuotaExceeded."""
        draft = check(draft, self._egress)
        secret = signature.new_secret()
        endpoint_id = await self._store.new_endpoint_id()
        sealed = self._keys.seal(tenant, endpoint_id, signature.key_of(secret))
        endpoint = await self._store.insert_endpoint(
            endpoint_id, tenant, draft, sealed, configured=False, most=self._most
        )
        if endpoint is None:
            raise QuotaExceeded("endpoint")
        return endpoint, secret

    async def list_page(self, tenant: str, page: Page) -> tuple[Sequence[Endpoint], UUID | None]:
        """A page, and the id below which the next one begins, if there is one."""
        rows = await self._store.list_endpoints(tenant, page.before, page.size + 1)
        shown = rows[: page.size]
        return shown, shown[-1].id if len(rows) > len(shown) else None

    async def delete(self, tenant: str, endpoint_id: UUID) -> None:
        """What was to be delivered to it is given up soon after. Raises ResourceNotFound."""
        if not await self._store.delete_endpoint(tenant, endpoint_id):
            raise ResourceNotFound("endpoint")
        self._on_deleted()


def check(draft: Draft, egress: Egress) -> Draft:
    """The same without repetitions. Raises RequestInvalid."""
    if found := list(_violations(draft, egress)):
        raise RequestInvalid(found)
    return Draft(draft.url, tuple(dict.fromkeys(draft.event_types)), draft.description)


def _violations(draft: Draft, egress: Egress) -> Iterator[Violation]:
    if problem := url_problem(draft.url, egress):
        yield Violation("url", problem)
    for index, event_type in enumerate(draft.event_types):
        if event_type not in EVENT_TYPES:
            yield Violation(f"event_types[{index}]", "no such event type")
    if len(draft.description) > MAX_DESCRIPTION:
        yield Violation("description", f"must have at most {MAX_DESCRIPTION} characters")


def url_problem(text: str, egress: Egress) -> str | None:
    """What is wrong with an endpoint's URL, as far as can be told without looking its host up."""
    if not text:
        return "is required"
    if len(text) > MAX_URL:
        return f"must have at most {MAX_URL} characters"
    try:
        url = URL(text)
    except ValueError:
        return "is not a URL"
    return _part_problem(text, url) or _host_problem(url.raw_host or "", egress)


def _part_problem(text: str, url: URL) -> str | None:
    if UNSAFE.search(text):
        return "must not contain spaces, control characters or backslashes"
    if url.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if "@" in re.split("[/?#]", text.partition("//")[2], maxsplit=1)[0]:
        return "must not contain a user or password"
    if "#" in text:
        return "must not have a fragment"
    return "must have a port from 1 to 65535" if url.port == 0 else None


def _host_problem(host: str, egress: Egress) -> str | None:
    if ":" not in host and not NAME.fullmatch(host):
        return "must have a host"
    return None if egress.permits_host(host) else "must not lead to an address that webhooks may not go to"
