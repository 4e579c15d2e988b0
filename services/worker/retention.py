"""Retention, on every worker and led by none: what ended long enough ago goes, batch by batch.

A sweep walks the events, which are the ends in their order, from a mark that is stored with what the batch removed. So
any worker goes on where another stopped, and the same rows are not walked again: what was removed stays in the indexes
until it is vacuumed. Two may find the mark at once; one of them takes it, and the other has nothing to do.
"""

import random
from dataclasses import asdict
from datetime import timedelta
from typing import Protocol, Self
from uuid import UUID

import structlog

from services.worker.retention_store import Batch, Looked, RetentionStore
from shared.batching import Contention
from shared.clock import tick
from shared.errors import DatabaseUnavailable
from shared.loop import Loop

log = structlog.get_logger()

INTERVAL = 60.0  # seconds, before jitter
SOON = 1.0

# What commits later than this after its id was made is passed over by a mark, and met again: by the next sweep, which
# takes what this one does and more, or when the last one begins again.
SLACK = timedelta(minutes=1)
AGAIN = timedelta(days=1)

WORKERS = timedelta(days=1)  # without a sign of life
MANY = 1000  # reservations at once: there are as many as starts


class BatchSize:
    """As many as can be done quickly: locks are held, and a stop is delayed, for no longer."""

    MOST, LEAST = 1024, 16
    SLOW = 0.5  # seconds
    GOOD_ENOUGH = 8  # quick batches in a row

    def __init__(self) -> None:
        self.rows = self.MOST
        self._quick = 0

    def took(self, seconds: float) -> None:
        if seconds > self.SLOW:
            self.shrink()
            return
        self._quick += 1
        if self._quick >= self.GOOD_ENOUGH:
            self.rows = min(self.rows * 2, self.MOST)
            self._quick = 0

    def shrink(self) -> None:
        self.rows = max(self.rows // 2, self.LEAST)
        self._quick = 0


class Sweep(Protocol):
    """A kind of batch."""

    @property
    def name(self) -> str:
        """What its mark is called."""

    @property
    def again(self) -> timedelta | None:
        """How often to begin with the first event of all; None: never."""

    async def take(self, batch: Batch, mark: UUID, limit: int) -> tuple[Looked, dict[str, int]]:
        """Looks at up to `limit` events after the mark; answers how far, and how many of what were removed."""
        ...


class ContentSweep:
    """Erases contents: of what has a time to expire, and where `final`, of all that cannot be redriven."""

    def __init__(self, name: str, age: timedelta, *, final: bool, again: timedelta | None) -> None:
        self.name = name
        self.again = again
        self._age = age
        self._final = final

    async def take(self, batch: Batch, mark: UUID, limit: int) -> tuple[Looked, dict[str, int]]:
        looked, erased = await batch.erase_contents(mark, self._age, final=self._final, limit=limit)
        return looked, {"contents": erased}


class NotificationSweep:
    """Removes notifications, with all that is about them."""

    name = "NOTIFICATIONS"
    again = AGAIN

    def __init__(self, age: timedelta) -> None:
        self._age = age

    async def take(self, batch: Batch, mark: UUID, limit: int) -> tuple[Looked, dict[str, int]]:
        looked, found = await batch.find_removable(mark, self._age, limit=limit)
        return looked, asdict(await batch.remove(found))


class Retention:
    def __init__(
        self,
        store: RetentionStore,
        *,
        retention: timedelta,
        content_retention: timedelta,
        slack: timedelta = SLACK,
    ) -> None:
        """Neither where it is zero."""
        self._store = store
        self._retention = retention
        # What the first passes over, the second takes; what the last passes over, itself, when it begins again.
        first_again = None if content_retention else AGAIN
        sweeps: list[Sweep] = [ContentSweep("EXPIRING_CONTENTS", slack, final=False, again=first_again)]
        if content_retention:
            sweeps.append(ContentSweep("CONTENTS", content_retention + slack, final=True, again=AGAIN))
        if retention:
            sweeps.append(NotificationSweep(retention + slack))
        self._sweeps = [(sweep, BatchSize()) for sweep in sweeps]
        self._loop = Loop("retention", self.sweep)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    async def sweep(self) -> float:
        """One turn, of one batch of each kind: answers in how many seconds the next is due."""
        more: list[bool | None] = [await self._remove_aged()]
        more += [await self._take_batch(sweep, size) for sweep, size in self._sweeps]
        if None in more:
            return SOON
        return 0 if any(more) else INTERVAL * random.uniform(0.5, 1.5)

    async def _remove_aged(self) -> bool:
        """What has its time in a column. Answers whether there is much of it."""
        removed = {
            "workers": await self._store.remove_dead_workers(WORKERS),
            "recipient_reservations": await self._store.remove_reservations(SLACK),
        }
        if self._retention:
            removed["lane_history"] = await self._store.remove_lane_history(self._retention)
        _tell(removed)
        return removed["recipient_reservations"] >= MANY

    async def _take_batch(self, sweep: Sweep, size: BatchSize) -> bool | None:
        """Whether there is more to look at; None: it failed, and stands in no other's way."""
        began_at = tick()
        try:
            async with self._store.batch() as batch:
                mark = await batch.take_mark(sweep.name)
                if mark is None:
                    return False
                looked, removed = await sweep.take(batch, mark, size.rows)
                more = looked.count >= size.rows
                await batch.move_mark(sweep.name, looked.mark or mark, caught_up=not more, again=sweep.again)
        except (Contention, DatabaseUnavailable) as error:  # too much for a statement's time, it may be
            size.shrink()
            log.warning("retention.failed", sweep=sweep.name, exc_info=error)
            return None
        size.took(tick() - began_at)
        _tell(removed)
        return more


def _tell(removed: dict[str, int]) -> None:
    if any(removed.values()):
        log.info("retention.removed", **{table: count for table, count in removed.items() if count})
