"""The statuses of a notification, and every way from one to another.

The SQL carries its guards as literals, because a parameter would lose the partial indexes; a check reads every
statement and compares it with these tables.
"""

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SENT = "SENT"
    FAILED = "FAILED"
    DEAD_LETTERED = "DEAD_LETTERED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    SUPPRESSED = "SUPPRESSED"


ALL = frozenset(Status)

# What the system does by itself, and what a client may do to its own notification.
AUTOMATIC: Mapping[str, frozenset[str]] = {
    Status.PENDING: frozenset({Status.PROCESSING, Status.CANCELLED, Status.EXPIRED, Status.FAILED, Status.SUPPRESSED}),
    Status.PROCESSING: ALL - {Status.PROCESSING, Status.CANCELLED},
}

# What only an operator does.
OPERATOR: Mapping[str, frozenset[str]] = {
    Status.FAILED: frozenset({Status.PENDING}),
    Status.DEAD_LETTERED: frozenset({Status.PENDING}),
}

TERMINAL = ALL - AUTOMATIC.keys()


def allowed(source: str, target: str) -> bool:
    """Whether any statement may take a notification from `source` to `target`."""
    return target in AUTOMATIC.get(source, ()) or target in OPERATOR.get(source, ())
