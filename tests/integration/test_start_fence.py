"""The start fence: what must be sent once, or comes late to its call, asks first whether it is still ours."""

from typing import Any

import pytest

from services.worker.claim import Claim
from tests.integration.test_worker_faults import Bench, bench, lease_end, steal
from tests.notifications import Notifications
from tests.waiting import eventually

__all__ = ["bench"]


async def test_a_call_that_may_be_made_only_once_begins_after_its_start_was_written(
    notifications: Notifications, bench: Bench
) -> None:
    """By that a sweep tells whether a call can have been made."""
    bench.provider.gate.clear()
    once, usual = await notifications.insert("once", at_most_once=True), await notifications.insert("usual")
    await bench.start()
    await eventually(lambda: len(bench.provider.seen) == 2)
    started = [(await notifications.get(id_))["started_at"] is not None for id_ in (once, usual)]
    leases = [await lease_end(notifications, id_) for id_ in (once, usual)]
    bench.provider.gate.set()
    assert started == [True, False]
    assert leases[0] > leases[1]  # claimed by one statement, and renewed by the start


async def test_what_was_taken_over_before_its_call_is_not_sent(
    notifications: Notifications, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still between its claim and its call, for so long that it has to ask."""
    await notifications.insert("slow")
    monkeypatch.setattr("services.worker.delivery.FRESH", -1.0)
    claim_due = bench.store.claim_due

    async def stand_still(channel: str, **settings: Any) -> list[Claim]:
        claims = await claim_due(channel, **settings)
        for claim in claims:
            await steal(notifications, claim.notification_id)
        return claims

    monkeypatch.setattr(bench.store, "claim_due", stand_still)
    worker = await bench.start()
    await eventually(lambda: worker.lanes["EMAIL"].totals.claims_lost == 1)
    assert not bench.provider.seen
