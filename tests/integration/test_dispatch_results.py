"""Results: written once, by the claim that made them, and what they do to the endpoint."""

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from services.dispatcher.outcome import Answer, ErrorClass, GiveUpReason, Verdict
from tests.integration.test_dispatcher_rig import DELIVERED, REFUSED, Rig, result

HOUR = timedelta(hours=1)


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


async def seconds_until(rig: Rig, column: str) -> float:
    table = "webhook_deliveries" if column == "next_attempt_at" else "webhook_endpoints"
    return float(await rig.value(f"SELECT extract(epoch FROM {column} - now()) FROM notifyqueue.{table}"))


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_a_success_is_recorded_with_its_attempt(rig: Rig) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint())
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, Answer(204), DELIVERED)
    row = await rig.delivery(delivery)
    assert row["delivered_at"] is not None
    assert (row["claim_token"], row["given_up_at"]) == (None, None)
    (attempt,) = await rig.fetch("SELECT * FROM notifyqueue.webhook_attempts")
    assert attempt["started_at"] == claimed.claimed_at
    assert attempt["duration"] == timedelta(milliseconds=5)
    assert await rig.attempts(delivery) == [(1, 204, None)]


async def test_a_failure_is_due_again_after_its_delay_and_the_endpoint_with_it(rig: Rig) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint())
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, Answer(error=ErrorClass.TIMEOUT), Verdict(delay=timedelta(seconds=5)))
    assert 0 < await seconds_until(rig, "next_attempt_at") <= 5
    assert await seconds_until(rig, "next_due_at") == pytest.approx(await seconds_until(rig, "next_attempt_at"), abs=1)
    assert await rig.attempts(delivery) == [(1, None, "TIMEOUT")]
    await rig.make_due()
    (again,) = (await rig.claim()).deliveries
    assert again.attempt == 2


async def test_a_result_counts_once_and_only_under_the_claim_that_holds(rig: Rig) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint())
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, Answer(204), DELIVERED)
    assert not await rig.record(claimed, REFUSED, Verdict(delay=HOUR))
    assert (await rig.delivery(delivery))["delivered_at"] is not None
    assert await rig.attempts(delivery) == [(1, 204, None)]


async def test_results_of_a_group_are_judged_one_by_one(rig: Rig) -> None:
    endpoints = [await rig.endpoint() for _ in range(3)]
    await rig.deliveries(2, endpoints[0])
    claimed = list((await rig.claim()).deliveries)
    await rig.expire_leases()
    taken_over = (await rig.claim(limit=2)).deliveries
    lost = {delivery.id for delivery in taken_over}
    written = await rig.store.record_results([result(delivery, Answer(200), DELIVERED) for delivery in claimed])
    assert written == [delivery.id not in lost for delivery in claimed]


async def test_a_pause_moves_the_endpoint_and_is_never_shortened(rig: Rig) -> None:
    await rig.deliveries(3, await rig.endpoint())
    first, second, third = (await rig.claim()).deliveries
    assert await rig.record(first, Answer(429, ErrorClass.STATUS), Verdict(delay=HOUR, pause=HOUR))
    assert await rig.record(second, Answer(503, ErrorClass.STATUS), Verdict(delay=HOUR, pause=timedelta(seconds=5)))
    assert await rig.record(third, Answer(204), DELIVERED)
    assert await seconds_until(rig, "paused_until") == pytest.approx(3600, abs=60)


async def test_gone_disables_the_endpoint_and_gives_up_that_delivery_alone(rig: Rig) -> None:
    endpoint, other = await rig.endpoint(), await rig.endpoint()
    first, second = await rig.deliveries(2, endpoint)
    claimed = {delivery.id: delivery for delivery in (await rig.claim()).deliveries}
    assert await rig.record(claimed[first], Answer.of_status(410), Verdict(give_up_reason=GiveUpReason.GONE))
    stored = await rig.stored_endpoint(endpoint)
    assert (stored["enabled"], stored["disabled_reason"]) == (False, "GONE")
    assert (await rig.stored_endpoint(other))["enabled"]
    assert (await rig.delivery(first))["give_up_reason"] == "GONE"
    assert await rig.record(claimed[second], Answer(204), DELIVERED)  # it was under way, and arrived


async def test_the_last_failure_gives_up_with_its_reason(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    (delivery,) = await rig.deliveries(1, endpoint)
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, REFUSED, Verdict(give_up_reason=GiveUpReason.EXHAUSTED))
    row = await rig.delivery(delivery)
    assert (row["give_up_reason"], row["claim_token"]) == ("EXHAUSTED", None)
    await rig.make_due()
    assert not (await rig.claim()).deliveries


async def test_what_a_deleted_endpoint_was_to_get_is_given_up(rig: Rig) -> None:
    endpoint, other = await rig.endpoint(), await rig.endpoint()
    await rig.deliveries(1_200, endpoint)
    assert await rig.store.delete_endpoint("default", endpoint)
    while await rig.store.give_up_deleted():
        pass
    rows = await rig.fetch(
        "SELECT endpoint_id, give_up_reason, count(*) FROM notifyqueue.webhook_deliveries GROUP BY 1, 2"
    )
    assert {(row["endpoint_id"], row["give_up_reason"], row["count"]) for row in rows} == {
        (endpoint, "ENDPOINT_DELETED", 1_200),
        (other, None, 1_200),
    }
    stored = await rig.stored_endpoint(endpoint)
    assert (stored["sealed_secret"], stored["disabled_reason"]) == (b"", "DELETED")


async def test_what_is_under_way_to_a_deleted_endpoint_may_end(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(3, endpoint)
    arrives, fails, is_lost = (await rig.claim()).deliveries
    assert await rig.store.delete_endpoint("default", endpoint)
    assert await rig.store.give_up_deleted() == 1
    assert await rig.store.give_up_deleted() == 0  # until their leases end
    assert await rig.record(arrives, Answer(204), DELIVERED)
    assert await rig.record(fails, REFUSED, Verdict(delay=HOUR))
    await rig.expire_leases()
    assert await rig.store.give_up_deleted() == 1
    assert (await rig.delivery(arrives.id))["delivered_at"] is not None
    assert (await rig.delivery(fails.id))["give_up_reason"] == "ENDPOINT_DELETED"
    assert (await rig.delivery(is_lost.id))["give_up_reason"] == "ENDPOINT_DELETED"


async def test_deleting_twice_is_deleting_once(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    assert await rig.store.delete_endpoint("default", endpoint)
    first = await rig.stored_endpoint(endpoint)
    assert await rig.store.delete_endpoint("default", endpoint)
    assert await rig.stored_endpoint(endpoint) == first
