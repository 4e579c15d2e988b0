"""Admission: of what was claimed, who starts now, where a tenant limits what each recipient gets.

It comes after the claim and is the start fence as well. A recipient's lock is tried, never waited for, and held for one
short transaction; what is decided under it is the turnstile's. To ask again is safe: who was admitted takes the same
slot anew, and who was put to wait is found waiting.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Self
from uuid import UUID

import structlog

from services.worker.claim import Claim, Recipient
from services.worker.gates import look
from services.worker.turnstile import Plan, Window, admit, opens_in
from services.worker.turnstile_store import Gate, Turn, TurnstileStore
from shared.batching import GroupCommit
from shared.clock import tick
from shared.errors import DatabaseUnavailable

log = structlog.get_logger()

RECIPIENTS = 64  # locked by one transaction at most
PATIENCE = 5.0  # seconds in which a busy recipient is asked for again
PAUSE = 0.02  # seconds between two tries, before jitter
OUTAGE_PAUSE = 0.5


class Entry(Enum):
    STARTS = auto()
    WAITS = auto()
    """It is put down as waiting, and not held any more."""
    LOST = auto()
    """It was not ours any more."""
    BUSY = auto()
    """Nothing was decided: somebody else decides about this recipient just now."""
    FAILED = auto()
    """Nothing was decided, nor could it be asked."""


@dataclass(frozen=True, slots=True)
class Ticket:
    entry: Entry
    good_until: float = 0.0
    """Of STARTS, as `tick` counts: a call that comes later would lie too close to another's."""
    took_slot: bool = False
    """Of STARTS: it had not started in this window before."""
    opens_in: timedelta = timedelta()
    """Of WAITS: when its gate is looked at."""


class Admission:
    def __init__(self, store: TurnstileStore, *, lease: timedelta, on_wait: Callable[[str, timedelta], None]) -> None:
        """`on_wait` is told the channel of each gate at which somebody was put to wait, and when it is due."""
        self._store = store
        self._lease = lease
        self._on_wait = on_wait
        # One flight: two of this worker would find each other's recipients busy.
        self._group = GroupCommit[Claim, Ticket](
            self._admit, flights=asyncio.Semaphore(1), key=lambda claim: claim.notification_id, name="admit"
        )

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._group.__aexit__()

    async def ask(self, claim: Claim) -> Ticket:
        """Raises nothing but CancelledError. BUSY where it could not be decided for PATIENCE."""
        give_up_at = tick() + PATIENCE
        while True:
            try:
                ticket = await self._group.submit(claim)
            except DatabaseUnavailable:  # it may have been decided: the answer is what failed
                await asyncio.sleep(OUTAGE_PAUSE * random.uniform(0.5, 1.5))
                give_up_at = tick() + PATIENCE  # nobody was busy so far
                continue
            except Exception as error:
                log.warning("job.not_started", notification_id=str(claim.notification_id), exc_info=error)
                return Ticket(Entry.FAILED)
            if ticket.entry is not Entry.BUSY or tick() > give_up_at:
                return ticket
            await asyncio.sleep(PAUSE * random.uniform(0.5, 1.5))

    async def give_back(self, claim: Claim) -> None:
        """The slot that it took, where no call is made after all. What fails leaves it taken for a window."""
        try:
            await self._store.return_slot(claim)
        except Exception as error:
            log.warning("slot.not_returned", notification_id=str(claim.notification_id), exc_info=error)

    async def leave(self, claim: Claim) -> None:
        """It ended without the slot that a gate kept for it, which is the next one's. What fails costs it a window."""
        try:
            await self._store.look_at_gate(claim.recipient)
        except Exception as error:
            log.warning("gate.not_told", notification_id=str(claim.notification_id), exc_info=error)

    async def _admit(self, claims: Sequence[Claim]) -> list[Ticket]:
        asking = _by_recipient(claims)
        recipients = sorted(asking)
        tickets: dict[UUID, Ticket] = {}
        for first in range(0, len(recipients), RECIPIENTS):
            some = recipients[first : first + RECIPIENTS]
            tickets |= await self._decide({recipient: asking[recipient] for recipient in some})
        return [tickets.get(claim.notification_id, Ticket(Entry.BUSY)) for claim in claims]

    async def _decide(self, asking: Mapping[Recipient, Sequence[Claim]]) -> dict[UUID, Ticket]:
        """In one transaction. Nothing of those that are busy."""
        async with self._store.turn() as turn:
            ours = await turn.try_recipients(list(asking))
            claims = {claim.notification_id: claim for recipient in ours for claim in asking[recipient]}
            if not claims:
                return {}
            held = await turn.hold_claims(list(claims.values()))
            tickets = await _not_held(turn, [claim for id_, claim in claims.items() if id_ not in held])
            windows = await look(turn, ours)
            plans, taken = _plan(windows, _by_recipient([claims[id_] for id_ in held]))
            tickets |= await self._start(turn, windows, plans)
            gates = await _wait(turn, windows, plans, taken, claims)
        for gate in gates:
            self._on_wait(gate.channel, gate.opens_in)
            tickets |= {id_: Ticket(Entry.WAITS, opens_in=gate.opens_in) for id_ in plans[gate.recipient].wait}
        return tickets

    async def _start(
        self, turn: Turn, windows: Mapping[Recipient, tuple[Window, timedelta]], plans: Mapping[Recipient, Plan]
    ) -> dict[UUID, Ticket]:
        stamped_at = tick()  # or later
        starting: dict[UUID, tuple[Recipient, Window]] = {}
        tickets = {}
        for recipient, plan in plans.items():
            window, lateness = windows[recipient]
            starting |= dict.fromkeys(plan.start, (recipient, window))
            for id_ in plan.start:
                good_until = stamped_at + lateness.total_seconds()
                tickets[id_] = Ticket(Entry.STARTS, good_until=good_until, took_slot=id_ not in window.starts)
        if starting:
            await turn.start_admitted(starting, self._lease)
        return tickets


def _by_recipient(claims: Sequence[Claim]) -> Mapping[Recipient, Sequence[Claim]]:
    """In the order given."""
    found = defaultdict(list)
    for claim in claims:
        found[claim.recipient].append(claim)
    return found


def _plan(
    windows: Mapping[Recipient, tuple[Window, timedelta]], urgent: Mapping[Recipient, Sequence[Claim]]
) -> tuple[dict[Recipient, Plan], Counter[tuple[str, str]]]:
    """And how many slots each holder gave that nobody had: a subscriber's channels take from the same ones."""
    plans: dict[Recipient, Plan] = {}
    taken: Counter[tuple[str, str]] = Counter()
    for recipient, some in urgent.items():
        plan = admit(windows[recipient][0], [claim.notification_id for claim in some], taken[recipient.holder])
        taken[recipient.holder] += len(plan.newcomers)
        plans[recipient] = plan
    return plans, taken


async def _not_held(turn: Turn, claims: Sequence[Claim]) -> dict[UUID, Ticket]:
    if not claims:
        return {}
    standing = await turn.find_standing(claims)
    entries = {None: Entry.LOST, True: Entry.BUSY, False: Entry.WAITS}
    return {claim.notification_id: Ticket(entries[standing.get(claim.notification_id)]) for claim in claims}


async def _wait(
    turn: Turn,
    windows: Mapping[Recipient, tuple[Window, timedelta]],
    plans: Mapping[Recipient, Plan],
    taken: Mapping[tuple[str, str], int],
    claims: Mapping[UUID, Claim],
) -> list[Gate]:
    """Those who wait, and their gates, in one transaction: nobody waits without one."""
    waiting = {id_: recipient for recipient, plan in plans.items() for id_ in plan.wait}
    gates = [
        Gate(recipient, claims[plan.wait[0]].channel, opens_in(window, taken[recipient.holder]), window)
        for recipient, plan in plans.items()
        for window, _ in [windows[recipient]]
        if plan.wait
    ]
    if gates:
        await turn.wait_at_gates(waiting)
        await turn.set_gates(gates)
    return gates
