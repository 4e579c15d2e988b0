"""A worker: its lanes, and what is done to all of them at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Self
from uuid import UUID

import structlog

from services.worker.claim import Claim
from services.worker.lane import Lane
from shared.drain import Phase

log = structlog.get_logger()


class Worker:
    """Enters its lanes; leaving drains them, for at most `shutdown_timeout` seconds."""

    def __init__(self, worker_id: UUID, lanes: Mapping[str, Lane], *, shutdown_timeout: float) -> None:
        self.worker_id = worker_id
        self.lanes = lanes
        self.started_at = datetime.now(UTC)
        self.shutdown_timeout = shutdown_timeout
        self.on_phase: Callable[[], None] = lambda: None
        """Called when the phase is another one."""
        self._paused = False
        self._leaving = False
        self._drains: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for lane in self.lanes.values():
            await self._stack.enter_async_context(lane)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        try:
            await self._drain(self.shutdown_timeout)
        finally:
            await self._stack.aclose()

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self.lanes.values())

    @property
    def draining(self) -> bool:
        return self._paused

    @property
    def phase(self) -> Phase:
        if not self._paused:
            return Phase.RUNNING
        return Phase.DRAINING if self.in_flight else Phase.DRAINED

    async def drain(self, seconds: float) -> None:
        """Claims nothing more, and waits for what runs, for at most `seconds` or until it is resumed. Goes on if the
        caller leaves.
        """
        drain = asyncio.create_task(self._drain(seconds))
        self._drains.add(drain)
        drain.add_done_callback(self._drains.discard)
        await asyncio.wait([drain])
        if not drain.cancelled():
            drain.result()

    def resume(self) -> None:
        """Claims again, unless the process is ending."""
        if self._leaving:
            return
        self._paused = False
        for drain in self._drains:
            drain.cancel()
        for lane in self.lanes.values():
            lane.resume()
        self.on_phase()
        log.info("worker.resumed")

    def wake(self) -> None:
        for lane in self.lanes.values():
            lane.wake()

    def renewable(self) -> Iterable[Claim]:
        for lane in self.lanes.values():
            yield from lane.renewable()

    def lose(self, claim: Claim) -> None:
        self.lanes[claim.channel].lose(claim)

    async def _drain(self, seconds: float) -> None:
        self._paused = True
        self.on_phase()
        lanes = self.lanes.values()
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(lane.pause() for lane in lanes))
                await asyncio.gather(*(lane.wait_empty() for lane in lanes))
        except TimeoutError:
            log.warning("worker.drain_timeout", in_flight=self.in_flight)
        else:
            self.on_phase()
            log.info("worker.drained")
