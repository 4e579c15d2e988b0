"""Dispatching as one thing that starts, pauses and ends: fan-out, deliveries, and what deleted endpoints leave."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self
from uuid import UUID

import structlog

from services.dispatcher.deliveries import Deliveries
from shared.drain import Phase
from shared.loop import Loop

log = structlog.get_logger()

FAN_OUT_GROUP = 500  # GROUP of store.py


@dataclass(frozen=True, slots=True)
class Status:
    dispatcher_id: UUID
    phase: Phase
    started_at: datetime
    concurrency: int
    in_flight: int
    delivered: int
    failed: int


class Store(Protocol):
    async def fan_out_events(self) -> tuple[int, int]: ...
    async def give_up_deleted(self) -> int: ...


class Dispatch:
    """`on_many` is called when a fan-out left more to deliver than this process has room for."""

    def __init__(
        self,
        store: Store,
        deliveries: Deliveries,
        *,
        dispatcher_id: UUID,
        concurrency: int,
        poll_interval: Callable[[], float],
        on_many: Callable[[], None],
    ) -> None:
        self._store = store
        self._id = dispatcher_id
        self._deliveries = deliveries
        self._concurrency = concurrency
        self._poll_interval = poll_interval
        self._on_many = on_many
        self._fan_out = Loop("fan-out", self._fan_out_turn)
        self._removal = Loop("removal", self._removal_turn)
        self._loops = (deliveries.loop, self._fan_out, self._removal)
        self._draining: asyncio.Task[None] | None = None
        self._paused = asyncio.Event()
        self._leaving = False
        self._started_at = datetime.now(UTC)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._deliveries)
            await stack.enter_async_context(self._fan_out)
            await stack.enter_async_context(self._removal)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        draining = self._begin_drain()
        await self._paused.wait()
        await self._stack.aclose()
        draining.cancel()
        await asyncio.wait({draining})  # it may be at the database, which is left next

    def events_arrived(self) -> None:
        self._fan_out.wake()

    def endpoints_changed(self) -> None:
        self._deliveries.loop.wake()
        self._removal.wake()

    async def drain(self, longest: float) -> None:
        """Begins nothing more; returns when nothing is under way, when it is resumed, or after `longest` seconds.

        What was begun goes on in any case, also if the caller is cancelled.
        """
        await asyncio.wait({self._begin_drain()}, timeout=longest)

    def resume(self) -> None:
        if self._draining is None or self._leaving:
            return
        self._draining.cancel()
        self._draining = None
        self._paused.clear()
        for loop in self._loops:
            loop.resume()
        log.info("dispatcher.resumed")

    def status(self) -> Status:
        return Status(
            dispatcher_id=self._id,
            phase=self._phase(),
            started_at=self._started_at,
            concurrency=self._concurrency,
            in_flight=self._deliveries.in_flight,
            delivered=self._deliveries.delivered,
            failed=self._deliveries.failed,
        )

    @property
    def draining(self) -> bool:
        return self._draining is not None

    def _phase(self) -> Phase:
        if self._draining is None:
            return Phase.RUNNING
        return Phase.DRAINED if self._draining.done() else Phase.DRAINING

    def _begin_drain(self) -> "asyncio.Task[None]":
        if self._draining is None:
            log.info("dispatcher.draining")
            self._draining = asyncio.create_task(self._become_idle(), name="drain")
        return self._draining

    async def _become_idle(self) -> None:
        await asyncio.gather(*(loop.pause() for loop in self._loops))
        self._paused.set()
        await self._deliveries.wait_idle()

    async def _fan_out_turn(self) -> float:
        events, deliveries = await self._store.fan_out_events()
        if deliveries:
            log.debug("webhook.fanned_out", events=events, deliveries=deliveries)
            self._deliveries.loop.wake()
        if deliveries > self._concurrency:
            self._on_many()
        return 0 if events == FAN_OUT_GROUP else self._poll_interval()

    async def _removal_turn(self) -> float:
        return 0 if await self._store.give_up_deleted() else self._poll_interval()
