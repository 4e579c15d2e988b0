"""Takes notifications and all that is about them out of the tables, from the bottom up.

What somebody has changed meanwhile stays, and so does what it belongs to: no row is left that names one that is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.database import Executor, Statements

sql = Statements("shared.removal")


@dataclass(frozen=True, slots=True)
class Removed:
    """How many rows."""

    notifications: int = 0
    contents: int = 0
    history: int = 0
    events: int = 0
    deliveries: int = 0
    attempts: int = 0


class Removal:
    """Within a transaction, and one at a time: whoever removes holds the mark NOTIFICATIONS of retention."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def remove(self, notification_ids: Sequence[UUID], event_ids: Sequence[UUID]) -> Removed:
        """Both ascending; the notifications are held, and all their events are among the events."""
        (deliveries,) = await self._executor.fetch(sql["remove_deliveries"], event_ids)
        events = await self._executor.fetch(sql["remove_events"], event_ids)
        (rest,) = await self._executor.fetch(sql["remove_notifications"], notification_ids)
        return Removed(events=len(events), **deliveries, **rest)
