"""Which Firebase project sends, and with whose key. Durations are seconds."""

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from services.worker.providers.connection import check_url

if TYPE_CHECKING:
    from google.auth import crypt

URL = "https://fcm.googleapis.com"
PROJECT = re.compile(r"[A-Za-z0-9.:-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """What Google gives as a file: who asks for access tokens, where, and by which key."""

    project: str
    email: str
    token_url: str
    signer: "crypt.Signer" = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, which tells nothing of the text."""
        try:
            found = json.loads(text)
            signer = _signer(found["private_key"], found.get("private_key_id"))
            made = cls(str(found["project_id"]), str(found["client_email"]), str(found["token_uri"]), signer)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError("credentials: not the key of a service account, in JSON") from None
        if not PROJECT.fullmatch(made.project):
            raise ValueError("credentials: not the key of a service account, in JSON")
        try:
            check_url(made.token_url)
        except ValueError:
            raise ValueError("credentials: token_uri must be https") from None
        return made


@lru_cache(maxsize=1)
def _signer(key: str, key_id: str | None) -> "crypt.Signer":
    """Kept, for a start asks twice, and to judge a key takes a twentieth of a second. Raises ValueError, TypeError."""
    from google.auth import crypt  # a tenth of a start, for those who push

    signer: crypt.Signer = crypt.RSASigner.from_string(key, key_id)
    return signer


@dataclass(frozen=True, slots=True, kw_only=True)
class FcmSettings:
    """Raises ValueError where they cannot work; the message names the setting and no value."""

    account: ServiceAccount
    project: str = ""
    """Default: the account's."""
    url: str = URL
    timeout: float = 10.0
    """From the start to the end of the answer."""
    token_timeout: float = 5.0
    """Likewise, for an access token."""

    def __post_init__(self) -> None:
        if self.project and not PROJECT.fullmatch(self.project):
            raise ValueError("project: must be the id of a project")
        check_url(self.url)
