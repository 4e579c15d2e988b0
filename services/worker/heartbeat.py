"""The heartbeat: says that this worker lives, writes what it has seen of its lanes, and reads what all have."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Self
from uuid import UUID

import structlog

from services.worker.measured import told_code
from services.worker.shared_lane import (
    Change,
    Close,
    DelayProbe,
    Hold,
    LaneFacts,
    Open,
    ReturnProbe,
    SharedLane,
)
from services.worker.store import LaneLoad, Store
from shared.batching import Contention
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.telemetry import metrics

log = structlog.get_logger()

AFTER_FAILURE = 1.0
INTERVAL = 5.0  # a third of what sql/read_workers.sql of the scheduler takes for alive


class Heartbeat:
    """Entered before the lanes and left after them, so that what they see last is written too."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[str, SharedLane],
        *,
        worker_id: UUID,
        phase: Callable[[], str],
        loads: Callable[[], Sequence[LaneLoad]],
        first_probe: timedelta,
        longest_probe: timedelta,
        on_news: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        """`on_news` is told the channel of a lane that is not as it was; `on_change` that this worker changed one."""
        self._store = store
        self._lanes = lanes
        self._worker_id = worker_id
        self._phase = phase
        self._loads = loads
        self._first_probe = first_probe
        self._longest_probe = longest_probe
        self._on_news = on_news
        self._on_change = on_change
        self._loop = Loop("heartbeat", self.beat)
        for lane in lanes.values():
            lane.on_change = self._loop.wake

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()
        try:
            for lane in self._lanes.values():
                await self._write_all(lane)
            await self._store.forget_worker(self._worker_id)
        except (DatabaseUnavailable, Contention):
            log.warning("worker.not_forgotten")  # its row grows old

    def wake(self) -> None:
        self._loop.wake()

    async def beat(self) -> float:
        """One turn: answers in how many seconds the next is due."""
        written = [await self._write_all(lane) for lane in self._lanes.values()]
        for facts in await self._store.beat(self._worker_id, self._phase(), self._loads()):
            if facts.channel in self._lanes:
                self._apply(facts)
        return INTERVAL if all(written) else AFTER_FAILURE

    def _apply(self, facts: LaneFacts) -> None:
        changed = self._lanes[facts.channel].apply(facts)
        if changed:
            log.info("lane.changed", channel=facts.channel, paused=facts.paused, breaker_open=facts.open)
        if changed or facts.open:  # the time of the next probe may be another
            self._on_news(facts.channel)

    async def _write_all(self, lane: SharedLane) -> bool:
        """Whether all that a lane had seen was written. What was not is kept, and stands in no other lane's way."""
        changes = lane.take_changes()
        while changes:
            try:
                await self._write(lane, changes[0])
            except (DatabaseUnavailable, Contention) as error:
                lane.put_back(changes)
                log.warning("lane.not_written", channel=lane.channel, exc_info=error)
                return False
            del changes[0]
        return True

    async def _write(self, lane: SharedLane, change: Change) -> None:
        channel = lane.channel
        match change:
            case Open(known, cause):
                if await self._store.open_breaker(channel, known, cause, self._first_probe, self._worker_id):
                    log.error("breaker.opened", channel=channel, cause=told_code(lane.provider, cause))
                    metrics.BREAKER_CHANGES.add(1, channel, "open")
            case Close(probe):
                if await self._store.close_breaker(channel, probe.opening, self._worker_id):
                    log.warning("breaker.closed", channel=channel)
                    metrics.BREAKER_CHANGES.add(1, channel, "closed")
            case DelayProbe(probe):
                await self._store.delay_probe(channel, probe, self._longest_probe)
            case ReturnProbe(probe):
                await self._store.return_probe(channel, probe)
            case Hold() as hold:
                await self._store.hold_lane(channel, hold.span)
                log.warning("lane.held", channel=channel, seconds=round(hold.span.total_seconds(), 3))
        self._on_change()
