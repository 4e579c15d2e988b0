"""The share of the least urgent costs the others nothing but that share."""

from dataclasses import replace
from datetime import timedelta

from services.worker.shared_lane import LaneFacts, SharedLane
from tests.unit.test_lane_probe import SETTINGS, Stub, lane


async def test_a_claim_from_the_bottom_decides_no_sleep() -> None:
    shared = SharedLane("EMAIL", 8)
    shared.apply(LaneFacts("EMAIL", paused=False, opening=0, open=False, probe_in=0, held_for=0))
    idle = lane(Stub(due=60.0), shared)
    idle.settings = replace(SETTINGS, aging=timedelta(minutes=5))
    assert [await idle._turn() for _ in range(16)] == [*[SETTINGS.poll_interval] * 7, 0] * 2
