"""Writing down how attempts ended: in groups, fenced, and again and again until the database has answered.

An attempt that was made and is not recorded looks like one without an answer, and may be made again. So a record is
never given up while the process lives, not even when its lease has passed: only the fence can say that it is too late.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self, TypeVar
from uuid import UUID

import structlog

from services.worker.claim import Claim
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.store import Record, Store
from shared.batching import Contention, GroupCommit
from shared.errors import DatabaseUnavailable

log = structlog.get_logger()

Kind = TypeVar("Kind", Sent, Ended, Later)

PAUSE = 0.5  # seconds between tries, before jitter


class Recording:
    """Records verdicts, and tells what came of it: an end is an event, a retry is work for a lane."""

    def __init__(
        self,
        store: Store,
        *,
        flights: asyncio.Semaphore,
        on_end: Callable[[], None],
        on_retry: Callable[[str, Later], None],
    ) -> None:
        self._store = store
        self._on_end = on_end
        self._on_retry = on_retry
        self._closing = asyncio.Event()
        self._sent = self._group(self._store.mark_sent, flights)
        self._ended = self._group(self._store.end_unsent, flights)
        self._later = self._group(self._store.retry_later, flights)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for group in (self._sent, self._ended, self._later):
            await self._stack.enter_async_context(group)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Writes what it can; what the database does not take now is left to the lease."""
        self._closing.set()
        await self._stack.aclose()

    async def record(self, claim: Claim, verdict: Verdict) -> bool:
        """Whether the claim was still ours. Raises DatabaseUnavailable only when the process is closing."""
        match verdict:
            case Sent():
                ours = await self._sent.submit(Record(claim, verdict))
                self._on_end()
            case Ended():
                ours = await self._ended.submit(Record(claim, verdict))
                self._on_end()
            case Later():
                ours = await self._later.submit(Record(claim, verdict))
                self._on_retry(claim.channel, verdict)
        return ours

    def _group(
        self, write: Callable[[Sequence[Record[Kind]]], Awaitable[set[UUID]]], flights: asyncio.Semaphore
    ) -> GroupCommit[Record[Kind], bool]:
        async def flush(records: Sequence[Record[Kind]]) -> list[bool]:
            return await self._until_answered(write, records)

        return GroupCommit(flush, flights=flights, key=lambda record: record.held.notification_id)

    async def _until_answered(
        self, write: Callable[[Sequence[Record[Kind]]], Awaitable[set[UUID]]], records: Sequence[Record[Kind]]
    ) -> list[bool]:
        repeated = False
        while True:
            try:
                ours = await write(records)
                # After a lost answer, what the fence refuses may have been written by the try before.
                if repeated and (missing := [r for r in records if r.held.notification_id not in ours]):
                    ours |= await self._store.find_recorded(missing)
                return [record.held.notification_id in ours for record in records]
            except (DatabaseUnavailable, Contention):
                if self._closing.is_set():
                    raise
                repeated = True
                log.warning("record.repeated", records=len(records))
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE * random.uniform(0.5, 1.5)):
                await self._closing.wait()
        except TimeoutError:
            pass
