"""Whom nothing is sent to: what the rows that match an address and a category come to."""

import string
from collections.abc import Sequence

LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

OPTED_OUT = "OPTED_OUT"
BOUNCED = "BOUNCED"
"""A source alone: a provider said that nothing arrives there."""
ADDRESS_SUPPRESSED = "ADDRESS_SUPPRESSED"
"""It bounced, somebody complained, or an operator blocked it."""

REASONS = frozenset({OPTED_OUT, ADDRESS_SUPPRESSED})


def reason(sources: Sequence[str]) -> str | None:
    """Why nothing is sent; None where no row matches. What a person asked for is named before what a machine found."""
    if not sources:
        return None
    return OPTED_OUT if OPTED_OUT in sources else ADDRESS_SUPPRESSED


def form(channel: str, address: str) -> str:
    """The one spelling of a canonical address, as the database's suppressed_form has it."""
    return address.translate(LOWER) if channel == "EMAIL" else address
