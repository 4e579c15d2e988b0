"""Which attempts count: whatever may have reached a provider does, but for what is the provider's fault and safe."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from services.worker.admission import Entry, Ticket
from services.worker.claim import Claim
from services.worker.delivery import RETURN_DELAY, Delivery, Running
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.providers import Answer, Handover, Message, Outcome
from services.worker.recording import Fence
from services.worker.shared_lane import LaneFacts, Probe, SharedLane
from shared.backoff import Backoff
from shared.clock import tick
from tests.providers import ScriptedProvider

CLAIM = Claim(
    notification_id=UUID(int=1),
    claim_token=UUID(int=2),
    channel="EMAIL",
    number=1,
    max_attempts=5,
    at_most_once=False,
    reconciled=False,
    maybe_delivered=False,
    time_left=None,
    address="someone@example.com",
    content={"text": "Hello"},
    expiries=0,
    asked_at=tick(),
    tenant_id="default",
    limited=False,
)
ONCE = replace(CLAIM, at_most_once=True)
LIMITED = replace(CLAIM, limited=True)
PROBE = Probe(1, UUID(int=3))


@dataclass(frozen=True)
class Case:
    """What a claim meets on its way."""

    answer: Answer | None = None
    claim: Claim = CLAIM
    raises: bool = False
    """The adapter does, or else never answers, where there is no answer."""
    begins: bool = True
    open: bool = False
    """The breaker is."""
    probe: bool = False
    failures: int = 0
    """Of others, right before."""
    draining: bool = False
    drains_at_gate: bool = False
    """It begins while it is asked whether it may start."""
    fence: Fence | None = Fence.PASSED
    """None: it could not be asked."""
    entry: Entry = Entry.STARTS


REFUNDED = {
    "throttled": Case(Answer.THROTTLED),
    "throttled at the cap": Case(Answer.THROTTLED, replace(CLAIM, number=5)),
    "failed while the breaker is open": Case(Answer.TRANSIENT, open=True),
    "failed as the one that opens the breaker": Case(Answer.TRANSIENT, failures=4),
    "misconfigured while the breaker is open": Case(Answer.MISCONFIGURED, open=True),
    "misconfigured as the one that opens the breaker": Case(Answer.MISCONFIGURED, failures=2),
    "a probe that fails": Case(Answer.TRANSIENT, open=True, probe=True),
    "a probe that fails when another has closed the breaker": Case(Answer.TRANSIENT, probe=True),
    "a probe that fails at the cap": Case(Answer.TRANSIENT, replace(CLAIM, number=5), open=True, probe=True),
    "a probe that is misconfigured": Case(Answer.MISCONFIGURED, open=True, probe=True),
    "raised before the call while the breaker is open": Case(raises=True, begins=False, open=True),
    "a drain before the call": Case(draining=True),
    "a drain at the gate": Case(claim=LIMITED, draining=True),
    "somebody holds its row": Case(claim=ONCE, fence=Fence.BUSY),
    "the fence cannot be asked": Case(claim=ONCE, fence=None),
    "nobody can say whether it may start": Case(claim=LIMITED, entry=Entry.FAILED),
    "somebody decides about its recipient for long": Case(claim=LIMITED, entry=Entry.BUSY),
    "a drain while it is asked whether it may start": Case(claim=LIMITED, drains_at_gate=True),
    "out of time before the call": Case(claim=replace(CLAIM, time_left=timedelta())),
    "out of time at the gate": Case(claim=replace(LIMITED, time_left=timedelta())),
    "suppressed": Case(claim=replace(CLAIM, suppressed_by=["OPTED_OUT"])),
    "without content": Case(claim=replace(CLAIM, content=None)),
}
COUNTED = {
    "sent": Case(Answer.ACCEPTED),
    "a probe that is sent": Case(Answer.ACCEPTED, open=True, probe=True),
    "failed": Case(Answer.TRANSIENT),
    "failed at the cap": Case(Answer.TRANSIENT, replace(CLAIM, number=5)),
    "failed after failures too few to open the breaker": Case(Answer.TRANSIENT, failures=3),
    "misconfigured": Case(Answer.MISCONFIGURED),
    "without an answer": Case(Answer.UNKNOWN),
    "without an answer while the breaker is open": Case(Answer.UNKNOWN, open=True),
    "without an answer as the one that opens the breaker": Case(Answer.UNKNOWN, failures=4),
    "a probe without an answer": Case(Answer.UNKNOWN, open=True, probe=True),
    "the message is refused": Case(Answer.PERMANENT_MESSAGE),
    "the message is refused while the breaker is open": Case(Answer.PERMANENT_MESSAGE, open=True),
    "the address is refused": Case(Answer.PERMANENT_ADDRESS),
    "raised before the call": Case(raises=True, begins=False),
    "raised after the handover": Case(raises=True),
    "raised after the handover while the breaker is open": Case(raises=True, open=True),
    "out of time before the handover": Case(begins=False),
    "out of time after the handover": Case(),
    "out of time after the handover of a probe": Case(open=True, probe=True),
}
CASES = [
    *(pytest.param(case, False, id=f"refunded: {name}") for name, case in REFUNDED.items()),
    *(pytest.param(case, True, id=f"counted: {name}") for name, case in COUNTED.items()),
]
UNSTARTED = ["somebody holds its row", "the fence cannot be asked", "nobody can say whether it may start"]


class Adapter(ScriptedProvider):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self._case = case

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        self.seen.append(message)
        if self._case.begins:
            handover.begin()
        if self._case.raises:
            raise ValueError
        if self._case.answer is not None:
            return Outcome(self._case.answer)
        await asyncio.Event().wait()
        raise AssertionError


@dataclass
class Surroundings:
    """What a delivery asks before it calls, and tells how it ended."""

    case: Case
    verdicts: list[Verdict] = field(default_factory=list)
    asked: bool = False

    @property
    def draining(self) -> bool:
        return self.case.draining or (self.case.drains_at_gate and self.asked)

    async def give_back(self, claim: Claim) -> None:
        assert claim.limited

    async def submit(self, claim: Claim) -> Fence:
        if self.case.fence is None:
            raise RuntimeError
        return self.case.fence

    async def ask(self, claim: Claim) -> Ticket:
        self.asked = True
        return Ticket(self.case.entry, good_until=tick() + 60)

    async def record(self, claim: Claim, verdict: Verdict, *, trace: object = None) -> bool:
        self.verdicts.append(verdict)
        return True


def lane(case: Case) -> SharedLane:
    shared = SharedLane("EMAIL", 8)
    shared.apply(LaneFacts("EMAIL", paused=False, opening=1, open=case.open, probe_in=0, held_for=0))
    for number in range(case.failures):
        other = replace(CLAIM, notification_id=UUID(int=100 + number), asked_at=tick())
        shared.observe(other, Outcome(case.answer or Answer.TRANSIENT), probe=None)
    return shared


async def delivered(case: Case) -> tuple[Verdict, bool]:
    """What is recorded, and whether a call was made."""
    surroundings, adapter = Surroundings(case), Adapter(case)
    stub: Any = surroundings
    delivery = Delivery(
        *(adapter, stub, stub, stub, lane(case)),
        backoff=Backoff(),
        deadline=0.01,
        draining=lambda: surroundings.draining,
    )
    claim = replace(case.claim, asked_at=tick())
    await delivery.run(Running(claim, tick(), probe=PROBE if case.probe else None))
    (verdict,) = surroundings.verdicts
    return verdict, bool(adapter.seen)


def counts(verdict: Verdict) -> bool:
    """As the statements have it: sql/mark_sent.sql, end_unsent.sql, retry_later.sql."""
    match verdict:
        case Sent():
            return True
        case Ended(kind=kind):
            return kind is not None
        case Later(refunded=refunded):
            return not refunded


@pytest.mark.parametrize(("case", "counted"), CASES)
async def test_an_attempt_is_refunded_or_counts_by_what_it_met(case: Case, counted: bool) -> None:
    verdict, called = await delivered(case)
    assert counts(verdict) is counted
    assert called or not counted


@pytest.mark.parametrize("name", UNSTARTED)
async def test_what_could_not_be_started_comes_back_after_a_while(name: str) -> None:
    verdict, called = await delivered(REFUNDED[name])
    assert isinstance(verdict, Later)
    assert verdict.delay >= RETURN_DELAY > timedelta()
    assert not called


@pytest.mark.parametrize(
    "name", ["somebody decides about its recipient for long", "a drain while it is asked whether it may start"]
)
async def test_what_went_to_the_gate_for_nothing_keeps_its_place(name: str) -> None:
    verdict, called = await delivered(REFUNDED[name])
    assert verdict == Later(delay=timedelta(), kind=None, refunded=True)
    assert not called
