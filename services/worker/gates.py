"""Gates: where those stand who may not start yet, until a slot comes free.

Any worker opens the gates that are due, and calls up as many as there are free slots, the most urgent and oldest
first. They are claimed like everything else, and start in the slot that was kept for them. A lane that is paused or
held opens none, and one whose breaker is open only what it needs for a probe: what is called up holds a slot.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Self
from uuid import UUID

import structlog

from services.worker.claim import Recipient
from services.worker.shared_lane import SharedLane
from services.worker.turnstile import Window, opens_in
from services.worker.turnstile_store import Gate, Turn, TurnstileStore
from shared.batching import Contention
from shared.clock import tick
from shared.loop import Loop

log = structlog.get_logger()

TOGETHER = 64
MIN_SLEEP = 0.02
MENDING = 60.0  # seconds between two looks for somebody who waits at no gate, before jitter
BEFORE_ALL = Recipient("", "")


async def look(turn: Turn, recipients: Sequence[Recipient]) -> dict[Recipient, tuple[Window, timedelta]]:
    """Their windows, and how late a call may come. They are locked. No slot is kept for a lane that has stopped."""
    windows = await turn.read_windows(recipients)
    stalled = frozenset[UUID]().union(*(window.stalled for window, _ in windows.values()))
    if not stalled:
        return windows
    back = await turn.call_back(stalled)
    return {
        recipient: (replace(window, granted=window.granted - back), lateness)
        for recipient, (window, lateness) in windows.items()
    }


class Gates:
    """A lane's."""

    def __init__(
        self, store: TurnstileStore, lane: SharedLane, *, poll_interval: float, on_open: Callable[[str], None]
    ) -> None:
        """`on_open` is told the channel when somebody was called up: there is something to claim."""
        self._store = store
        self._lane = lane
        self._poll_interval = poll_interval
        self._on_open = on_open
        self._looks_at = inf
        self._mended = BEFORE_ALL
        self._mends_at = tick() + MENDING * random.random()
        self._loop = Loop(f"gates {lane.channel}", self._turn)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    def wake(self) -> None:
        self._loop.wake()

    def expect(self, span: timedelta) -> None:
        """A gate is due then, and other workers may not know."""
        if tick() + span.total_seconds() < self._looks_at:
            self._loop.wake()

    async def open(self, limit: int) -> int:
        """How many were called up, at up to `limit` gates that are due."""
        async with self._store.turn() as turn:
            due = await turn.take_gates(self._lane.channel, limit)
            ours = await turn.try_recipients(due) if due else []
            if not ours:
                return 0
            windows = {recipient: window for recipient, (window, _) in (await look(turn, ours)).items()}
            called = await turn.grant_slots(windows)
            gone = await turn.remove_gates(ours)
            gates = [
                Gate(recipient, self._lane.channel, opens_in(window, called[recipient]), window)
                for recipient, window in windows.items()
                if recipient not in gone
            ]
            if gates:
                await turn.set_gates(gates)
        if called:
            log.debug("gates.opened", channel=self._lane.channel, gates=len(ours), called=called.total())
            self._on_open(self._lane.channel)
        return called.total()

    async def mend(self) -> None:
        """Sets gates that are missing, of the next recipients for whom somebody waits."""
        last, missing = await self._store.mend_gates(self._mended)
        self._mended = last or BEFORE_ALL
        if missing:
            log.error("gates.mended", count=missing)

    async def _turn(self) -> float:
        self._looks_at = inf  # whoever expects something meanwhile is looked at next
        try:
            delay = await self._look()
        except Contention:
            delay = MIN_SLEEP
        self._looks_at = tick() + delay
        return delay

    async def _look(self) -> float:
        if tick() >= self._mends_at:
            self._mends_at = tick() + MENDING * random.uniform(0.5, 1.5)
            await self.mend()
        if self._lane.paused or self._lane.open:
            return self._poll_interval
        if (held_for := self._lane.held_for) > 0:
            return max(MIN_SLEEP, min(held_for, self._poll_interval))
        due = await self._store.read_next_gate(self._lane.channel)
        if due is None:
            return self._poll_interval
        if due > 0:
            return max(MIN_SLEEP, min(due, self._poll_interval))
        return 0 if await self.open(TOGETHER) else MIN_SLEEP
