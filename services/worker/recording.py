"""Writing down how attempts ended: in groups, fenced, and again and again until the database has answered.

An attempt that was made and is not recorded looks like one without an answer, and may be made again. So a record is
never given up while the process lives, and its lease is renewed meanwhile: only the fence can say that it is too late.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from enum import Enum, auto
from typing import Self, TypeVar
from uuid import UUID

import structlog

from services.worker.claim import Claim, Held
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.store import Record, Store
from shared.batching import BadItem, GroupCommit
from shared.telemetry import traces
from shared.telemetry.spans import Reference

log = structlog.get_logger()

Kind = TypeVar("Kind", Sent, Ended, Later)

PAUSE = 0.5  # seconds between tries, before jitter


class Fence(Enum):
    """What a fenced write came to, for one claim."""

    PASSED = auto()
    """It was ours, and is written."""
    LOST = auto()
    """It is not ours any more; nothing was written."""
    BUSY = auto()
    """It is ours, and somebody else has locked it just now; nothing was written."""


async def fences(store: Store, claims: Sequence[Held], written: set[UUID]) -> list[Fence]:
    """What became of each claim of a group, of which those were `written`."""
    missing = [claim for claim in claims if claim.notification_id not in written]
    busy = await store.find_held(missing) if missing else set()
    return [_fence(claim.notification_id, written, busy) for claim in claims]


def _fence(notification_id: UUID, written: set[UUID], busy: set[UUID]) -> Fence:
    if notification_id in written:
        return Fence.PASSED
    return Fence.BUSY if notification_id in busy else Fence.LOST


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
        self._sent = self._group("mark_sent", store.mark_sent, flights)
        self._ended = self._group("end_unsent", store.end_unsent, flights)
        self._later = self._group("retry_later", store.retry_later, flights)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for group in (self._sent, self._ended, self._later):
            await self._stack.enter_async_context(group)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Writes what it can; what the database does not take now is left to the lease."""
        self._closing.set()
        await self._stack.aclose()

    async def record(self, claim: Claim, verdict: Verdict, *, trace: Reference | None = None) -> bool:
        """Whether the claim was still ours. `trace` is the span of the attempt, where there was one.

        Raises BadItem, and whatever stands in the way when the process closes.
        """
        match verdict:
            case Sent():
                ours = await self._until_answered(self._sent, Record(claim, verdict, trace=trace))
                self._on_end()
            case Ended():
                ours = await self._until_answered(self._ended, Record(claim, verdict, trace=trace))
                self._on_end()
            case Later():
                ours = await self._until_answered(self._later, Record(claim, verdict, trace=trace))
                self._on_retry(claim.channel, verdict)
        return ours

    def _group(
        self, name: str, write: Callable[[Sequence[Record[Kind]]], Awaitable[set[UUID]]], flights: asyncio.Semaphore
    ) -> GroupCommit[Record[Kind], Fence]:
        async def flush(records: Sequence[Record[Kind]]) -> list[Fence]:
            with traces.group(name, "UPDATE", "notifications", (record.trace for record in records)):
                written = await write(records)
            return await fences(self._store, [record.held for record in records], written)

        return GroupCommit(flush, flights=flights, key=lambda record: record.held.notification_id, name=name)

    async def _until_answered(self, group: GroupCommit[Record[Kind], Fence], record: Record[Kind]) -> bool:
        repeated = False
        while True:
            try:
                fence = await group.submit(record)
                if fence is Fence.PASSED:
                    return True
                if fence is Fence.LOST:
                    return repeated and await self._stands(record)
            except BadItem:
                raise
            except Exception as error:
                if self._closing.is_set():
                    raise
                repeated = True
                log.warning("record.repeated", notification_id=str(record.held.notification_id), exc_info=error)
            await self._pause()

    async def _stands(self, record: Record[Verdict]) -> bool:
        """Whether an earlier try, whose answer was lost, has written it. Where no call was made, it would have left
        nothing to find, and nothing is lost either way.
        """
        verdict: Verdict = record.verdict
        if not isinstance(verdict, Sent) and verdict.kind is None:
            return True
        return record.held.notification_id in await self._store.find_recorded([record])

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE * random.uniform(0.5, 1.5)):
                await self._closing.wait()
        except TimeoutError:
            pass
