"""API keys as their holders write them: `nq_<id>_<secret>`. The id is public, and stands in histories and logs.

The secret is 32 random bytes: nothing that could be guessed, so one SHA-256 of it is enough at rest.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Self

FORM = re.compile(r"nq_([0-9a-f]{12})_([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_hex(6), secrets.token_hex(32))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None: this is no key."""
        found = FORM.fullmatch(text)
        return cls(*found.groups()) if found else None

    def reveal(self) -> str:
        """The whole key, for whoever is to hold it."""
        return f"nq_{self.id}_{self.secret}"

    def secret_hash(self) -> bytes:
        """What is stored."""
        return hashlib.sha256(self.secret.encode()).digest()
