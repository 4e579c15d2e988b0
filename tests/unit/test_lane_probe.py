"""A probe that cannot be sent is given back, whatever stood in the way; and it passes its recipient's turnstile."""

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from services.worker.admission import Entry, Ticket
from services.worker.claim import Claim
from services.worker.lane import Lane, LaneSettings, SuspectSlot
from services.worker.outcome import Verdict
from services.worker.shared_lane import LaneFacts, ReturnProbe, SharedLane
from shared.backoff import Backoff
from shared.clock import tick
from shared.errors import DatabaseUnavailable
from tests.providers import ScriptedProvider

SETTINGS = LaneSettings("EMAIL", 8, 30.0, timedelta(seconds=60), 5.0, timedelta())
NOBODY = UUID(int=0)


class Stub:
    """A store in which a probe is due, and something is to be sent."""

    def __init__(self, *, claims: Exception | None = None, found: list[Any] | None = None, due: float = -1.0) -> None:
        self._claims = claims
        self._found = found or []
        self._due = due
        self.probed = 0

    async def read_next_due(self, *_: object, **__: object) -> float:
        return self._due

    async def take_probe(self, *_: object) -> bool:
        self.probed += 1
        return True

    async def claim_probe(self, *_: object, **__: object) -> list[Any]:
        if self._claims:
            raise self._claims
        return self._found

    claim_due = claim_probe


class Turnstile:
    """Puts everybody to wait, and calls up as many as it is told; records what it is asked to."""

    def __init__(self, *, called: int = 0) -> None:
        self._called = called
        self.asked: list[Claim] = []
        self.opened: list[int] = []
        self.recorded: list[Verdict] = []
        self.left: list[Claim] = []

    async def ask(self, claim: Claim) -> Ticket:
        self.asked.append(claim)
        return Ticket(Entry.WAITS)

    async def open(self, limit: int) -> int:
        self.opened.append(limit)
        return self._called

    async def record(self, claim: Claim, verdict: Verdict, *, trace: object = None) -> bool:
        assert not self.left
        self.recorded.append(verdict)
        return True

    async def leave(self, claim: Claim) -> None:
        self.left.append(claim)


def lane(store: Stub, shared: SharedLane, turnstile: Turnstile | None = None) -> Lane:
    nothing = cast(Any, None)
    stub = cast(Any, turnstile or Turnstile())
    return Lane(
        SETTINGS,
        cast(Any, store),
        ScriptedProvider(),
        stub,
        nothing,
        stub,
        stub,
        shared,
        worker_id=NOBODY,
        backoff=Backoff(),
        suspects=SuspectSlot(),
        listening=lambda: True,
    )


@pytest.fixture
def shared() -> SharedLane:
    shared = SharedLane("EMAIL", 8)
    shared.apply(LaneFacts("EMAIL", paused=False, opening=1, open=True, probe_in=0, held_for=0))
    return shared


async def test_a_probe_whose_claim_failed_is_given_back_and_so_is_what_it_may_have_taken(shared: SharedLane) -> None:
    probing = lane(Stub(claims=DatabaseUnavailable()), shared)
    with pytest.raises(DatabaseUnavailable):
        await probing._probe()
    (change,) = shared.take_changes()
    assert isinstance(change, ReturnProbe)
    assert probing._unclaimed


async def test_a_probe_that_finds_nothing_is_given_back(shared: SharedLane) -> None:
    await lane(Stub(), shared)._probe()
    (change,) = shared.take_changes()
    assert isinstance(change, ReturnProbe)


async def test_wake_ups_ask_for_no_second_probe_while_one_is_under_way(shared: SharedLane) -> None:
    store = Stub()
    probing = lane(store, shared)
    for _ in range(10):
        await probing._probe()
    assert store.probed == 1


def limited(*suppressed_by: str, granted: bool = False) -> Claim:
    return Claim(
        UUID(int=1),
        UUID(int=2),
        "EMAIL",
        1,
        5,
        at_most_once=False,
        reconciled=False,
        maybe_delivered=False,
        time_left=None,
        address="someone@example.com",
        content={},
        expiries=0,
        asked_at=tick(),
        tenant_id="default",
        limited=True,
        suppressed_by=suppressed_by,
        granted=granted,
    )


async def test_a_probe_that_has_to_wait_for_its_recipient_is_given_back(shared: SharedLane) -> None:
    turnstile = Turnstile()
    probing = lane(Stub(found=[limited()]), shared, turnstile)
    await probing._probe()
    await probing.wait_empty()
    assert len(turnstile.asked) == 1
    assert not turnstile.recorded
    assert [type(change) for change in shared.take_changes()] == [ReturnProbe]


@pytest.mark.parametrize("granted", [False, True])
async def test_a_probe_that_is_suppressed_is_given_back_and_so_is_the_slot_that_a_gate_kept_for_it(
    shared: SharedLane, granted: bool
) -> None:
    turnstile = Turnstile()
    probing = lane(Stub(found=[limited("OPTED_OUT", granted=granted)]), shared, turnstile)
    await probing._probe()
    await probing.wait_empty()
    assert not turnstile.asked
    assert [getattr(verdict, "reason", None) for verdict in turnstile.recorded] == ["OPTED_OUT"]
    assert len(turnstile.left) == granted
    assert [type(change) for change in shared.take_changes()] == [ReturnProbe]


@pytest.mark.parametrize(("due", "called", "probed"), [(60.0, 1, 1), (60.0, 0, 0), (-1.0, 0, 1)])
async def test_where_nothing_else_is_due_a_probe_is_called_up_from_a_gate(
    shared: SharedLane, due: float, called: int, probed: int
) -> None:
    store, turnstile = Stub(due=due), Turnstile(called=called)
    await lane(store, shared, turnstile)._probe()
    assert store.probed == probed
    assert turnstile.opened == ([1] if due > 0 else [])
