"""Ids as callers write them."""

import re
from uuid import UUID

from shared.errors import RequestInvalid, Violation

# Python's UUID also reads braces, URNs and hyphens in any place.
WELL_FORMED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def uuid_of(field: str, text: str) -> UUID:
    """Raises RequestInvalid, which names the field."""
    if not text:
        raise RequestInvalid([Violation(field, "is required")])
    if not WELL_FORMED.fullmatch(text):
        raise RequestInvalid([Violation(field, "is not a UUID")])
    return UUID(text)
