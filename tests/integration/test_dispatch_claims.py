"""Claims: caps and fairness are exact for any number of dispatchers, and what a dead one held comes back."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from services.dispatcher import claims as claims_module
from services.dispatcher.claims import Claims
from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer, GiveUpReason, Verdict
from shared.database import Database
from shared.errors import DatabaseUnavailable
from tests.integration.test_dispatcher_rig import DELIVERED, LEASE, REFUSED, Rig
from tests.waiting import eventually

HOUR = timedelta(hours=1)


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


def by_endpoint(deliveries: list[Delivery]) -> Counter[UUID]:
    return Counter(delivery.endpoint_id for delivery in deliveries)


async def next_due_in(rig: Rig, endpoint_id: UUID) -> timedelta | None:
    """None: never."""
    found: timedelta | None = await rig.value(
        """
        SELECT next_due_at - now() FROM notifyqueue.webhook_endpoints WHERE id = $1 AND next_due_at < 'infinity'
        """,
        endpoint_id,
    )
    return found


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_a_claim_takes_what_is_due_oldest_first_and_says_everything_that_a_post_needs(rig: Rig) -> None:
    endpoint = await rig.endpoint("https://example.com/hook")
    deliveries = await rig.deliveries(3, endpoint)
    (first,) = (await rig.claim(limit=1)).deliveries
    assert (first.id, first.endpoint_id, first.tenant, first.attempt) == (deliveries[0], endpoint, "default", 1)
    assert first.url == "https://example.com/hook"
    assert first.body == await rig.value("SELECT body FROM notifyqueue.webhook_events WHERE id = $1", first.event_id)
    assert [delivery.id for delivery in (await rig.claim()).deliveries] == deliveries[1:]
    assert not (await rig.claim()).deliveries


async def test_what_is_not_due_is_not_claimed_and_the_endpoint_knows_when_it_will_be(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    (delivery,) = await rig.deliveries(1, endpoint)
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, REFUSED, Verdict(delay=HOUR))
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET next_due_at = now()")
    assert not (await rig.claim()).deliveries
    due_at = await rig.value("SELECT next_attempt_at FROM notifyqueue.webhook_deliveries WHERE id = $1", delivery)
    assert (await rig.stored_endpoint(endpoint))["next_due_at"] == due_at


async def test_an_endpoint_with_nothing_open_is_never_due(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(1, endpoint)
    (claimed,) = (await rig.claim()).deliveries
    assert await rig.record(claimed, Answer(204), DELIVERED)
    await rig.make_due()
    assert not (await rig.claim()).deliveries
    assert await next_due_in(rig, endpoint) is None


async def test_a_claimed_endpoint_is_due_again_at_the_end_of_the_lease(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(1, endpoint)
    await rig.claim()
    left = await next_due_in(rig, endpoint)
    assert left is not None
    assert timedelta() < left <= LEASE


@pytest.mark.parametrize("cap", [1, 3, 10])
async def test_an_endpoint_never_has_more_than_its_cap_under_way(rig: Rig, cap: int) -> None:
    """Sixteen claimers against three endpoints, while results make room again and again."""
    endpoints = [await rig.endpoint() for _ in range(3)]
    await rig.deliveries(120, endpoints[0])
    seen: list[Delivery] = []
    over: list[int] = []

    async def watch(done: asyncio.Event) -> None:
        while not done.is_set():
            most = await rig.value(
                """
                SELECT max(leased) FROM (
                  SELECT count(*) AS leased FROM notifyqueue.webhook_deliveries
                  WHERE claim_token IS NOT NULL GROUP BY endpoint_id) AS counted
                """
            )
            over.append(most or 0)

    async def work() -> None:
        idle = 0
        while idle < 20:
            claimed = (await rig.claim(cap=cap)).deliveries
            idle = 0 if claimed else idle + 1
            seen.extend(claimed)
            for delivery in claimed:
                assert await rig.record(delivery, Answer(204), DELIVERED)

    done = asyncio.Event()
    watching = asyncio.create_task(watch(done))
    await asyncio.gather(*(work() for _ in range(16)))
    while remaining := (await rig.claim(cap=cap)).deliveries:  # what the others passed over at their end
        seen.extend(remaining)
        for delivery in remaining:
            assert await rig.record(delivery, Answer(204), DELIVERED)
    done.set()
    await watching
    assert max(over) <= cap
    assert by_endpoint(seen) == dict.fromkeys(endpoints, 120)
    assert all(delivery.attempt == 1 for delivery in seen)


async def test_an_endpoint_at_its_cap_is_claimed_from_as_soon_as_a_result_makes_room(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(5, endpoint)
    (first, _) = (await rig.claim(cap=2)).deliveries
    assert not (await rig.claim(cap=2)).deliveries
    assert await rig.store.read_next_due(2, HOUR) is None
    assert await rig.record(first, Answer(204), DELIVERED)
    assert (await rig.store.read_next_due(2, HOUR) or 0) <= 0
    assert len((await rig.claim(cap=2)).deliveries) == 1


async def test_room_goes_to_the_endpoint_that_has_the_least_under_way(rig: Rig) -> None:
    busy, calm = await rig.endpoint(), await rig.endpoint("http://127.0.0.1:9/", "notification.failed")
    await rig.deliveries(20, busy)
    await rig.claim(limit=6)
    await rig.deliveries(20, calm, status="FAILED")
    claimed = by_endpoint([*(await rig.claim(limit=8)).deliveries])
    assert claimed == {calm: 7, busy: 1}


async def test_room_is_shared_between_endpoints_whatever_waits_for_them(rig: Rig) -> None:
    flooded = await rig.endpoint()
    await rig.deliveries(50, flooded)
    quiet = [await rig.endpoint("http://127.0.0.1:9/", "notification.failed") for _ in range(3)]
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET created_at = now() WHERE id = $1", flooded)
    await rig.deliveries(1, quiet[0], status="FAILED")
    claimed = by_endpoint([*(await rig.claim(limit=5)).deliveries])
    assert claimed == {flooded: 2} | dict.fromkeys(quiet, 1)


async def test_an_endpoint_that_another_claim_holds_is_passed_over(rig: Rig) -> None:
    held, free = await rig.endpoint(), await rig.endpoint()
    await rig.deliveries(1, held)
    async with rig.database.transaction() as executor:
        await executor.fetch("SELECT FROM notifyqueue.webhook_endpoints WHERE id = $1 FOR NO KEY UPDATE", held)
        assert by_endpoint([*(await rig.claim()).deliveries]) == {free: 1}
    assert by_endpoint([*(await rig.claim()).deliveries]) == {held: 1}


async def test_what_fan_out_wrote_while_a_claim_ran_is_not_forgotten(rig: Rig) -> None:
    """The claim read the endpoint before the fan-out committed, and its deliveries after."""
    endpoint = await rig.endpoint()
    await rig.deliveries(1, endpoint)
    await rig.events(1)
    async with rig.database.transaction() as executor:
        store = type(rig.store)(executor)
        taken = await store.take_endpoints(10, 10)
        fanning = asyncio.create_task(rig.store.fan_out_events())
        await eventually(lambda: rig.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        claimed = await store.claim_deliveries(
            taken, cap=10, limit=10, token=uuid4(), lease=LEASE, max_attempts=10, tick=0.0
        )
        assert len(claimed.deliveries) == 1
    assert await fanning == (1, 1)
    assert len((await rig.claim()).deliveries) == 1


async def test_a_paused_endpoint_is_not_claimed_from_until_its_pause_is_over(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(3, endpoint)
    (claimed,) = (await rig.claim(limit=1)).deliveries
    assert await rig.record(claimed, REFUSED, Verdict(delay=timedelta(), pause=HOUR))
    assert not (await rig.claim()).deliveries
    assert await rig.store.read_next_due(10, LEASE) == pytest.approx(3600, abs=60)
    attempts = await rig.fetch("SELECT attempt_count FROM notifyqueue.webhook_deliveries")
    assert sorted(row["attempt_count"] for row in attempts) == [0, 0, 1]
    await rig.make_due()
    assert len((await rig.claim()).deliveries) == 3


async def test_an_expired_lease_is_claimed_again_and_recorded_as_a_lost_attempt(rig: Rig) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint())
    (lost,) = (await rig.claim()).deliveries
    await rig.expire_leases()
    (again,) = (await rig.claim()).deliveries
    assert (again.id, again.attempt) == (delivery, 2)
    assert not await rig.record(lost, Answer(204), DELIVERED)
    assert await rig.record(again, Answer(200), DELIVERED)
    assert await rig.attempts(delivery) == [(1, None, "LEASE_LOST"), (2, 200, None)]


async def test_a_delivery_whose_last_attempt_was_lost_is_given_up_without_another_post(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    (delivery,) = await rig.deliveries(1, endpoint)
    for _ in range(2):
        assert len((await rig.claim(max_attempts=2)).deliveries) == 1
        await rig.expire_leases()
    claimed = await rig.claim(max_attempts=2)
    assert not claimed.deliveries
    assert claimed.given_up == [(delivery, endpoint)]
    row = await rig.delivery(delivery)
    assert (row["give_up_reason"], row["attempt_count"]) == ("EXHAUSTED", 2)
    assert await rig.attempts(delivery) == [(1, None, "LEASE_LOST"), (2, None, "LEASE_LOST")]


async def test_those_that_are_given_up_make_way_for_those_behind_them(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    await rig.deliveries(6, endpoint)
    lost = (await rig.claim(cap=3, max_attempts=1)).deliveries
    await rig.expire_leases()
    await rig.execute(  # to where they stand before the others
        "UPDATE notifyqueue.webhook_deliveries SET next_attempt_at = '2000-01-01' WHERE claim_token IS NOT NULL"
    )
    claimed = await rig.claim(cap=3, max_attempts=1)
    assert ([*claimed.deliveries], len(claimed.given_up)) == ([], len(lost))
    assert (await rig.store.read_next_due(3, HOUR) or 0) <= 0
    assert len((await rig.claim(cap=3, max_attempts=1)).deliveries) == 3


async def test_a_released_claim_costs_no_attempt(rig: Rig) -> None:
    await rig.deliveries(4, await rig.endpoint())
    claimed = await rig.claim()
    assert await rig.store.release_claim(claimed.deliveries[0].claim_token) == 4
    again = (await rig.claim()).deliveries
    assert [delivery.id for delivery in again] == [delivery.id for delivery in claimed.deliveries]
    assert {delivery.attempt for delivery in again} == {1}
    assert await rig.store.release_claim(claimed.deliveries[0].claim_token) == 0


class Broken(Database):
    """Commits, and says that the connection was lost before it could know."""

    lost = True

    def transaction(self):  # type: ignore[no-untyped-def]
        inner = super().transaction()
        outer = self

        class Transaction:
            async def __aenter__(self):  # type: ignore[no-untyped-def]
                return await inner.__aenter__()

            async def __aexit__(self, *error):  # type: ignore[no-untyped-def]
                await inner.__aexit__(*error)
                if outer.lost:
                    outer.lost = False
                    raise DatabaseUnavailable

        return Transaction()


async def test_a_claim_whose_answer_was_lost_is_given_back_by_its_token(rig: Rig, stack: AsyncExitStack) -> None:
    await rig.deliveries(3, await rig.endpoint())
    database = await stack.enter_async_context(Broken(rig.url, name="test"))
    claims = Claims(database, cap=10, lease=60, max_attempts=10)
    with pytest.raises(DatabaseUnavailable):
        await claims.claim(10)
    assert await rig.value("SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE claim_token IS NOT NULL") == 3
    claimed = await claims.claim(10)
    assert [delivery.attempt for delivery in claimed.deliveries] == [1, 1, 1]


async def test_a_claim_whose_answer_came_late_is_given_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.deliveries(1, await rig.endpoint())
    claims = Claims(rig.database, cap=10, lease=60, max_attempts=10)
    ticks = iter([0.0, claims_module.LATEST_START + 0.1, 10.0, 10.1])
    monkeypatch.setattr(claims_module, "tick", lambda: next(ticks))
    assert not (await claims.claim(10)).deliveries
    (claimed,) = (await claims.claim(10)).deliveries
    assert (claimed.attempt, claimed.claimed_tick) == (1, 10.0)


async def test_a_disabled_endpoint_keeps_what_waits_for_it(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    waiting = await rig.deliveries(2, endpoint)
    (claimed,) = (await rig.claim(limit=1)).deliveries
    assert await rig.record(claimed, Answer.of_status(410), Verdict(give_up_reason=GiveUpReason.GONE))
    await rig.make_due()
    assert not (await rig.claim()).deliveries
    row = await rig.delivery(waiting[1])
    assert (row["given_up_at"], row["attempt_count"]) == (None, 0)
