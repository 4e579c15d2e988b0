"""A probe that cannot be sent is given back, whatever stood in the way."""

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from services.worker.lane import Lane, LaneSettings, SuspectSlot
from services.worker.shared_lane import LaneFacts, ReturnProbe, SharedLane
from shared.backoff import Backoff
from shared.errors import DatabaseUnavailable

SETTINGS = LaneSettings("EMAIL", 8, 30.0, timedelta(seconds=60), 5.0, timedelta())
NOBODY = UUID(int=0)


class Stub:
    """A store in which a probe is due, and something is to be sent."""

    def __init__(self, *, claims: Exception | None = None) -> None:
        self._claims = claims
        self.probed = 0

    async def read_next_due(self, *_: object, **__: object) -> float:
        return -1.0

    async def take_probe(self, *_: object) -> bool:
        self.probed += 1
        return True

    async def claim_probe(self, *_: object, **__: object) -> list[Any]:
        if self._claims:
            raise self._claims
        return []

    claim_due = claim_probe


def lane(store: Stub, shared: SharedLane) -> Lane:
    nothing = cast(Any, None)
    return Lane(
        SETTINGS,
        cast(Any, store),
        nothing,
        nothing,
        nothing,
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
