"""Lanes share no fate, and all workers know the same of each: given up once, probed by one, paused by a person."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from services.worker.claim import Claim
from services.worker.providers import Answer, Outcome
from services.worker.shared_lane import Probe
from services.worker.store import LaneLoad, Store
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ACCEPTED, ScriptedProvider
from tests.waiting import eventually, settled

DOWN = Outcome(Answer.TRANSIENT, code="451")
WRONG = Outcome(Answer.MISCONFIGURED, code="535")
BUSY = Outcome(Answer.THROTTLED, code="429", not_before=timedelta(seconds=1))
PROBES: dict[str, Any] = {"probe_base": 0.3, "probe_cap": 0.6}

servers = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def store(database_url: str) -> Any:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield Store(database)


async def lane(notifications: Notifications, channel: str = "EMAIL") -> "asyncpg.Record":
    row = await notifications.connection.fetchrow("SELECT * FROM notifyqueue.lanes WHERE channel = $1", channel)
    assert row is not None
    return row


async def kinds(notifications: Notifications) -> list[str]:
    rows = await notifications.connection.fetch("SELECT kind FROM notifyqueue.lane_history ORDER BY id")
    return [row["kind"] for row in rows]


def statuses_are(notifications: Notifications, **expected: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await notifications.statuses() == expected

    return look


def opened(notifications: Notifications) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return (await lane(notifications))["opened_at"] is not None

    return look


async def pause(notifications: Notifications, channel: str) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.lanes SET paused_at = now(), paused_by = 'key:1', pause_reason = 'r' WHERE channel = $1",
        channel,
    )


async def resume(notifications: Notifications) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.lanes SET paused_at = NULL, paused_by = NULL, pause_reason = NULL"
    )
    await notifications.connection.execute("NOTIFY notifyqueue_lanes")


async def test_an_outage_costs_a_backlog_next_to_nothing_and_the_lane_heals_by_itself(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    ids = await notifications.insert_many(60)
    provider.otherwise = DOWN
    await start_worker(database_url, provider, worker_concurrency=8, **PROBES)
    probed = await eventually(lambda: len(provider.seen) >= 25)  # more than what ran when it opened, and two probes
    assert probed

    row = await lane(notifications)
    assert (row["cause"], row["opening"]) == ("451", 1)
    provider.otherwise = ACCEPTED
    await eventually(statuses_are(notifications, SENT=60))
    attempts = sorted([(await notifications.get(id_))["attempt_count"] for id_ in ids])
    assert attempts == [1] * 56 + [2] * 4  # finding out costs four, and the rest nothing
    assert await kinds(notifications) == ["BREAKER_OPENED", "BREAKER_CLOSED"]
    assert (await lane(notifications))["opened_at"] is None


async def test_three_that_always_fail_are_dead_lettered_beside_others_that_do_not(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    for number in range(3):
        await notifications.insert(f"never-{number}", address=f"never-{number}@example.com")
        provider.script(f"never-{number}@example.com", *[DOWN] * 100)
    await start_worker(database_url, provider, retry_base=0.02, retry_cap=0.05, probe_base=0.1, probe_cap=0.1)
    numbers = itertools.count()

    async def given_up() -> bool:
        await notifications.insert(f"well-{next(numbers)}")
        return (await notifications.statuses()).get("DEAD_LETTERED") == 3

    await eventually(given_up)
    well = [message.delivery_key for message in provider.seen if not message.address.startswith("never")]
    assert len(well) == len(set(well))


async def test_what_may_have_been_delivered_is_counted_also_in_an_outage(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.insert_many(8)
    provider.otherwise = Outcome(Answer.UNKNOWN, code="timeout")
    await start_worker(database_url, provider, worker_concurrency=8, probe_base=60.0)
    await eventually(opened(notifications))

    async def all_counted() -> bool:
        rows = await notifications.connection.fetch("SELECT status, attempt_count FROM notifyqueue.notifications")
        return all((row["status"], row["attempt_count"]) == ("PENDING", 1) for row in rows)

    await eventually(all_counted)


async def test_the_fleet_opens_once_and_probes_with_one_notification_at_a_time(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.insert_many(40)
    provider.otherwise = DOWN
    settings: dict[str, Any] = {"worker_concurrency": 4, **PROBES}
    workers = [await start_worker(database_url, provider, **settings) for _ in range(3)]

    async def all_know() -> bool:
        beats = await notifications.connection.fetch("SELECT heartbeat_at FROM notifyqueue.workers")
        since = (await lane(notifications))["opened_at"]
        return since is not None and len(beats) == 3 and all(row["heartbeat_at"] > since for row in beats)

    await eventually(all_know)
    await eventually(lambda: all(worker.in_flight == 0 for worker in workers))
    provider.at_once = 0
    seen = len(provider.seen)
    await eventually(lambda: len(provider.seen) >= seen + 4)
    assert provider.at_once == 1
    assert await kinds(notifications) == ["BREAKER_OPENED"]
    provider.otherwise = ACCEPTED
    await eventually(statuses_are(notifications, SENT=40))
    assert await kinds(notifications) == ["BREAKER_OPENED", "BREAKER_CLOSED"]


async def test_a_provider_that_refuses_us_opens_the_breaker_with_its_cause(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.insert_many(3, max_attempts=1)
    provider.otherwise = WRONG
    await start_worker(database_url, provider, worker_concurrency=1, probe_base=60.0)
    await eventually(opened(notifications))
    assert (await lane(notifications))["cause"] == "535"
    # Two counted, which is what finding out costs; the third is the provider's.
    await eventually(statuses_are(notifications, DEAD_LETTERED=2, PENDING=1))


async def test_throttling_leaves_the_provider_alone_for_as_long_as_it_asked(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    first = await notifications.insert("first", address="busy@example.com")
    provider.script("busy@example.com", BUSY)
    await start_worker(database_url, provider)

    async def held() -> Any:
        return await notifications.connection.fetchval(
            "SELECT held_until FROM notifyqueue.lanes WHERE channel = 'EMAIL' AND held_until > '-infinity'"
        )

    until = await eventually(held)
    second = await notifications.insert("second")
    await eventually(statuses_are(notifications, SENT=2))
    assert provider.requests == {first: 2, second: 1}
    assert (await notifications.get(second))["finished_at"] >= until
    assert (await notifications.get(first))["attempt_count"] == 1


async def test_after_throttling_half_as_many_run(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.insert("busy", address="busy@example.com")
    provider.script("busy@example.com", BUSY)
    await start_worker(database_url, provider, worker_concurrency=8)
    await eventually(lambda: len(provider.seen) == 1)
    provider.gate.clear()
    provider.at_once = 0
    await notifications.insert_many(20)
    await eventually(lambda: provider.at_once == 4)
    await settled()
    provider.gate.set()
    await eventually(statuses_are(notifications, SENT=21))
    assert provider.at_once <= 8


async def test_a_probe_without_a_call_makes_room_for_another(
    notifications: Notifications, start_worker: StartWorker, store: Store, provider: ScriptedProvider, database_url: str
) -> None:
    await store.open_breaker("EMAIL", 0, "503", timedelta(), uuid4())
    erased = await notifications.insert("erased", priority=3)
    await notifications.connection.execute("DELETE FROM notifyqueue.notification_contents")
    # Given up only after minutes, a probe that was not returned would fail this test.
    await start_worker(database_url, provider, email_provider_timeout=60.0, lease=100.0, **PROBES)
    await eventually(statuses_are(notifications, FAILED=1))
    await notifications.insert("next")
    await notifications.connection.execute("NOTIFY notifyqueue_lane_email")
    await eventually(statuses_are(notifications, FAILED=1, SENT=1))
    assert provider.requests[erased] == 0


async def test_of_the_suspects_one_runs_at_a_time(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    suspects = {await notifications.insert(f"suspect-{number}", expiries=2) for number in range(3)}
    provider.gate.clear()
    worker = await start_worker(database_url, provider)
    for number in range(3):  # each is another claim, while the first suspect is on the wire
        await notifications.insert(f"fresh-{number}")
        worker.wake()
        await eventually(lambda: len(provider.requests.keys() - suspects) > number)  # noqa: B023  (called at once)
    assert len(suspects & provider.requests.keys()) == 1
    provider.gate.set()
    await eventually(statuses_are(notifications, SENT=6))


async def test_lanes_that_claim_at_once_take_one_suspect_between_them(
    notifications: Notifications, start_worker: StartWorker, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = ("EMAIL", "SMS", "PUSH")
    providers = {channel: ScriptedProvider() for channel in channels}
    for channel, provider in providers.items():
        provider.gate.clear()
        await notifications.insert(f"suspect-{channel}", channel=channel, expiries=2)
        await notifications.insert(f"fresh-{channel}", channel=channel)
    claim_due, together, first = Store.claim_due, asyncio.Barrier(3), dict[str, list[Claim]]()

    async def meet_and_claim(store: Store, channel: str, **settings: Any) -> list[Claim]:
        if channel in first:
            return await claim_due(store, channel, **settings)
        await together.wait()
        first[channel] = await claim_due(store, channel, **settings)
        return first[channel]

    monkeypatch.setattr(Store, "claim_due", meet_and_claim)
    await start_worker(database_url, providers)
    await eventually(lambda: len(first) == 3)
    assert sorted(len(claims) for claims in first.values()) == [1, 1, 2]
    for provider in providers.values():
        provider.gate.set()
    await eventually(statuses_are(notifications, SENT=6))


async def test_a_drain_is_seen_by_all_at_once(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    worker = await start_worker(database_url, provider)

    async def phase() -> str:
        rows = await notifications.connection.fetch("SELECT phase FROM notifyqueue.workers")
        return str(rows[0]["phase"]) if rows else ""

    async def drained() -> bool:
        return await phase() == "DRAINED"

    async def running() -> bool:
        return await phase() == "RUNNING"

    await eventually(running)
    await worker.drain(10)
    await eventually(drained, within=4)  # before the next heartbeat by itself
    worker.resume()
    await eventually(running, within=4)


async def test_a_paused_lane_waits_and_the_others_go_on(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    providers = {channel: ScriptedProvider() for channel in ("EMAIL", "SMS", "PUSH")}
    await pause(notifications, "SMS")
    for channel in providers:
        await notifications.insert(channel, channel=channel)
    await start_worker(database_url, providers)
    await eventually(statuses_are(notifications, SENT=2, PENDING=1))
    await notifications.insert("another", channel="EMAIL")
    await eventually(statuses_are(notifications, SENT=3, PENDING=1))
    assert not providers["SMS"].seen
    await resume(notifications)
    await eventually(statuses_are(notifications, SENT=4))
    assert [set(provider.requests.values()) for provider in providers.values()] == [{1}] * 3


async def test_a_hanging_provider_holds_up_no_other_lane(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    providers = {channel: ScriptedProvider() for channel in ("EMAIL", "SMS")}
    providers["EMAIL"].gate.clear()
    for number in range(30):
        await notifications.insert(f"mail-{number}")
    await start_worker(database_url, providers, worker_concurrency=8, retry_base=1.0)
    await eventually(lambda: len(providers["EMAIL"].seen) == 8)
    for number in range(100):
        await notifications.insert(f"sms-{number}", channel="SMS")
    await eventually(lambda: len(providers["SMS"].seen) == 100)
    assert not await notifications.connection.fetchval(
        "SELECT count(*) FROM notifyqueue.notifications WHERE channel = 'EMAIL' AND status = 'SENT'"
    )


@servers
async def test_no_claim_that_begins_after_a_pause_takes_anything(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    await notifications.insert("due")
    await notifications.insert("suspect", expiries=2)
    await pause(notifications, "EMAIL")
    claim: dict[str, Any] = {
        "limit": 64,
        "classes": (3, 2, 1),
        "due_for": timedelta(),
        "worker_id": uuid4(),
        "lease": timedelta(seconds=60),
        "take_suspect": True,
    }
    assert not await store.claim_due("EMAIL", token=uuid4(), **claim)
    await resume(notifications)
    assert len(await store.claim_due("EMAIL", token=uuid4(), **claim)) == 2


@servers
async def test_a_breaker_opens_and_closes_once_for_each_opening(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    second = timedelta(seconds=1)
    assert await store.open_breaker("SMS", 0, "503", second, uuid4())
    assert not await store.open_breaker("SMS", 0, "timeout", second, uuid4())
    assert await store.close_breaker("SMS", 1, uuid4())
    assert not await store.close_breaker("SMS", 1, uuid4())
    assert not await store.open_breaker("SMS", 0, "old", second, uuid4())  # seen before all of this
    assert await store.open_breaker("SMS", 1, "504", second, uuid4())
    assert not await store.close_breaker("SMS", 1, uuid4())  # a probe of the opening before
    assert (await lane(notifications, "SMS"))["cause"] == "504"
    assert await kinds(notifications) == ["BREAKER_OPENED", "BREAKER_CLOSED", "BREAKER_OPENED"]


@servers
async def test_a_probe_is_one_workers_until_it_answers_or_is_given_up(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    minute = timedelta(minutes=1)
    first, second, third = (Probe(1, uuid4()) for _ in range(3))
    await store.open_breaker("SMS", 0, "503", timedelta(), uuid4())
    assert not await store.take_probe("SMS", Probe(0, uuid4()), minute)  # of no opening
    assert await store.take_probe("SMS", first, minute)
    assert not await store.take_probe("SMS", second, minute)
    await notifications.connection.execute("UPDATE notifyqueue.lanes SET probe_at = now() WHERE channel = 'SMS'")
    assert await store.take_probe("SMS", second, minute)  # whoever had it is gone
    until = (await lane(notifications, "SMS"))["probe_at"]
    await store.return_probe("SMS", first)  # and back, too late
    await store.delay_probe("SMS", first, minute)
    assert (await lane(notifications, "SMS"))["probe_at"] == until
    await store.return_probe("SMS", second)
    assert (await lane(notifications, "SMS"))["probe_at"] < until
    await pause(notifications, "SMS")
    await notifications.connection.execute("UPDATE notifyqueue.lanes SET probe_at = now() WHERE channel = 'SMS'")
    assert not await store.take_probe("SMS", third, minute)


@servers
async def test_probes_come_half_as_often_while_they_fail_down_to_a_bound(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    await store.open_breaker("SMS", 0, "503", timedelta(), uuid4())
    await notifications.connection.execute("UPDATE notifyqueue.lanes SET probe_delay = '5 s' WHERE channel = 'SMS'")
    delays = []
    for _ in range(5):
        probe = Probe(1, uuid4())
        await notifications.connection.execute("UPDATE notifyqueue.lanes SET probe_at = now() WHERE channel = 'SMS'")
        assert await store.take_probe("SMS", probe, timedelta(minutes=1))
        await store.delay_probe("SMS", probe, timedelta(seconds=60))
        delays.append((await lane(notifications, "SMS"))["probe_delay"].total_seconds())
    assert delays == [10, 20, 40, 60, 60]


@servers
async def test_a_probe_is_one_that_can_best_afford_it(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    failed = await notifications.insert("failed", priority=3, attempt_count=2)
    once = await notifications.insert("once", priority=3, at_most_once=True)
    fresh = {await notifications.insert(f"fresh-{number}", priority=1) for number in range(20)}
    await notifications.insert("suspect", priority=3, expiries=2)
    await notifications.insert("later", priority=3, due_in=timedelta(hours=1))
    worker_id, lease = uuid4(), timedelta(minutes=1)
    taken = []
    for _ in range(22):
        (claim,) = await store.claim_probe("EMAIL", token=uuid4(), worker_id=worker_id, lease=lease)
        taken.append(claim.notification_id)
    assert set(taken[:20]) == fresh  # low, and never tried: before the urgent one that keeps failing
    assert taken[20:] == [failed, once]
    assert await store.claim_probe("EMAIL", token=uuid4(), worker_id=worker_id, lease=lease) == []


async def test_some_that_always_fail_do_not_keep_an_open_lane_from_healing(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    for number in range(3):
        await notifications.insert(f"never-{number}", address=f"never-{number}@example.com", priority=3)
        provider.script(f"never-{number}@example.com", *[DOWN] * 1000)
    await start_worker(database_url, provider, retry_base=0.05, retry_cap=0.1, **PROBES)
    await eventually(opened(notifications))
    for number in range(50):
        await notifications.insert(f"well-{number}", priority=2)

    async def well_sent() -> bool:
        return (await notifications.statuses()).get("SENT") == 50

    await eventually(well_sent)


async def test_a_worker_that_fails_alone_steps_back_and_leaves_the_lane_to_the_others(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    well, sick = ScriptedProvider(), ScriptedProvider()
    sick.otherwise = WRONG
    settings: dict[str, Any] = {"worker_concurrency": 4, "probe_base": 1.0, "probe_cap": 30.0}
    await start_worker(database_url, sick, **settings)
    await notifications.insert_many(3, max_attempts=100)
    await eventually(opened(notifications))  # alone, it cannot know better
    await start_worker(database_url, well, **settings)

    async def stepped_back() -> bool:
        await notifications.insert(f"more-{len(well.seen) + len(sick.seen)}-{uuid4()}", max_attempts=100)
        closings = (await kinds(notifications)).count("BREAKER_CLOSED")
        return closings >= 1 and len(well.seen) >= 60

    await eventually(stepped_back, within=60)
    openings = (await kinds(notifications)).count("BREAKER_OPENED")
    before = len(sick.seen)
    for number in range(200):
        await notifications.insert(f"last-{number}", max_attempts=100)

    async def all_sent() -> bool:
        return set(await notifications.statuses()) == {"SENT"}

    await eventually(all_sent, within=60)
    assert (await kinds(notifications)).count("BREAKER_OPENED") == openings
    assert len(sick.seen) - before <= 10


async def test_one_lane_that_cannot_be_written_holds_up_neither_the_heartbeat_nor_the_others(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    providers = {channel: ScriptedProvider() for channel in ("EMAIL", "SMS")}
    providers["EMAIL"].script("busy@example.com", BUSY)
    await start_worker(database_url, providers)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM notifyqueue.lanes WHERE channel = 'EMAIL' FOR UPDATE")
            await notifications.insert("busy", address="busy@example.com")
            await eventually(lambda: len(providers["EMAIL"].seen) == 1)
            since = await other.fetchval("SELECT clock_timestamp() + interval '1 second'")

            async def beats_on() -> bool:
                beat = await notifications.connection.fetchval("SELECT max(heartbeat_at) FROM notifyqueue.workers")
                return bool(beat > since)

            await eventually(beats_on)
            await pause(notifications, "SMS")

            async def knows_of_the_pause() -> bool:
                paused = await notifications.connection.fetchval("SELECT max(paused_at) FROM notifyqueue.lanes")
                beat = await notifications.connection.fetchval("SELECT max(heartbeat_at) FROM notifyqueue.workers")
                return bool(beat > paused)

            await eventually(knows_of_the_pause)
    finally:
        await other.close()

    async def held() -> bool:
        until = await notifications.connection.fetchval(
            "SELECT held_until FROM notifyqueue.lanes WHERE channel = 'EMAIL'"
        )
        return bool(until and until.year > 1)

    await eventually(held)  # what was seen then is written now


async def test_what_this_worker_changed_in_a_lane_is_told_to_the_others_at_once(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    heard: list[str] = []
    other = await asyncpg.connect(database_url)
    try:
        await other.add_listener("notifyqueue_lanes", lambda *_: heard.append("lanes"))
        await start_worker(database_url, provider)
        provider.script("busy@example.com", BUSY)
        await notifications.insert("busy", address="busy@example.com")
        await eventually(lambda: bool(heard))
    finally:
        await other.close()


async def test_a_worker_is_known_while_it_lives_and_forgotten_when_it_stops_in_order(
    notifications: Notifications, store: Store, database_url: str
) -> None:
    worker_id = uuid4()
    facts = await store.beat(worker_id, "RUNNING", [LaneLoad("EMAIL", 64, 3, 10, 1), LaneLoad("SMS", 8, 0, 0, 0)])
    assert {fact.channel for fact in facts} == {"EMAIL", "SMS", "PUSH"}
    await store.beat(worker_id, "DRAINING", [LaneLoad("EMAIL", 64, 2, 11, 1), LaneLoad("SMS", 8, 0, 0, 0)])
    row = (await notifications.connection.fetch("SELECT * FROM notifyqueue.workers"))[0]
    assert (row["phase"], row["channels"], row["in_flight"], row["sent"]) == (
        "DRAINING",
        ["EMAIL", "SMS"],
        [2, 0],
        [11, 0],
    )
    assert row["heartbeat_at"] > row["started_at"]
    await store.forget_worker(worker_id)
    assert not await notifications.connection.fetch("SELECT FROM notifyqueue.workers")


async def test_a_new_worker_claims_nothing_of_an_open_lane_before_it_knows(
    notifications: Notifications, start_worker: StartWorker, store: Store, provider: ScriptedProvider, database_url: str
) -> None:
    await store.open_breaker("EMAIL", 0, "503", timedelta(hours=1), uuid4())
    await notifications.insert_many(20)
    worker = await start_worker(database_url, provider)

    async def beaten() -> bool:
        return bool(await notifications.connection.fetch("SELECT FROM notifyqueue.workers"))

    await eventually(beaten)
    for lane_ in worker.lanes.values():
        lane_.wake()
    await settled()
    assert not provider.seen
