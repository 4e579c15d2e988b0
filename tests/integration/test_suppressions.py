"""Whom nothing is sent to: refused when it is asked for, and ended before any call where it was accepted earlier."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc.aio
import pytest
from structlog.testing import capture_logs

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.worker.claim import Claim
from services.worker.outcome import Ended, suppressed
from services.worker.providers import Answer, Outcome
from services.worker.store import Record, Store
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub

GONE = "gone@example.com"
SOURCES = {
    "OPTED_OUT": ("RECIPIENT_OPTED_OUT", "OPTED_OUT"),
    "BOUNCED": ("ADDRESS_SUPPRESSED", "ADDRESS_SUPPRESSED"),
    "COMPLAINED": ("ADDRESS_SUPPRESSED", "ADDRESS_SUPPRESSED"),
    "OPERATOR": ("ADDRESS_SUPPRESSED", "ADDRESS_SUPPRESSED"),
}


async def suppress(notifications: Notifications, address: str = GONE, **columns: str) -> None:
    row = {"tenant_id": "default", "channel": "EMAIL", "address": address, "source": "OPTED_OUT"} | columns
    numbers = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    await notifications.connection.execute(
        f"INSERT INTO notifyqueue.suppressions ({', '.join(row)}) VALUES ({numbers})", *row.values()
    )


def schedule(key: str = "order-1", **fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    least: dict[str, Any] = {"idempotency_key": key, "address": GONE}
    if "sms" not in fields:
        least["email"] = {"subject": "Hello", "text": "How are you?"}
    return scheduler_pb2.ScheduleNotificationRequest(**least | fields)


async def reason(scheduler: Scheduler, request: scheduler_pb2.ScheduleNotificationRequest) -> str:
    """Why it was refused; empty where it was accepted."""
    try:
        await scheduler.ScheduleNotification(request)
    except grpc.aio.AioRpcError as error:
        trailers: dict[str, Any] = dict(error.trailing_metadata())
        return str(trailers["error-reason"])
    return ""


@pytest.mark.parametrize("source", SOURCES)
async def test_what_must_not_be_sent_is_refused_and_leaves_no_trace(
    scheduler: Scheduler, notifications: Notifications, source: str
) -> None:
    await suppress(notifications, source=source)
    assert await reason(scheduler, schedule()) == SOURCES[source][0]
    assert await notifications.statuses() == {}
    assert await reason(scheduler, schedule(address="other@example.com")) == ""


async def test_an_opt_out_is_named_before_what_bounced(scheduler: Scheduler, notifications: Notifications) -> None:
    for source in ("BOUNCED", "OPTED_OUT", "COMPLAINED"):
        await suppress(notifications, source=source)
    assert await reason(scheduler, schedule()) == "RECIPIENT_OPTED_OUT"


async def test_no_spelling_of_an_address_gets_past_an_opt_out(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    await suppress(notifications)
    await suppress(notifications, "+447700900123", channel="SMS")
    for spelling in (GONE, "Gone@Example.COM", "GONE@example.com"):
        assert await reason(scheduler, schedule(address=spelling)) == "RECIPIENT_OPTED_OUT"
    for spelling in ("07700 900123", "+44 7700 900123", "+44 (0)7700900123"):
        request = schedule(address=spelling, sms={"text": "Hello"})
        assert await reason(scheduler, request) == "RECIPIENT_OPTED_OUT"


async def test_it_is_the_tenants_the_channels_and_the_categorys_own(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await suppress(notifications, tenant_id="other")
    await suppress(notifications, channel="PUSH")
    await suppress(notifications, category="news")
    assert await reason(scheduler, schedule("a")) == ""
    assert await reason(scheduler, schedule("b", category="receipts")) == ""
    assert await reason(scheduler, schedule("c", category="news")) == "RECIPIENT_OPTED_OUT"
    await suppress(notifications)
    for category in ("", "receipts", "news"):
        assert await reason(scheduler, schedule("d", category=category)) == "RECIPIENT_OPTED_OUT"


async def test_a_replay_is_answered_whoever_opted_out_since(scheduler: Scheduler, notifications: Notifications) -> None:
    first = await scheduler.ScheduleNotification(schedule())
    await suppress(notifications)
    again = await scheduler.ScheduleNotification(schedule())
    assert (again.replayed, again.notification) == (True, first.notification)


# What was accepted before.


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


async def ended(notifications: Notifications, id_: UUID) -> bool:
    return await notifications.status(id_) not in ("PENDING", "PROCESSING")


@pytest.mark.parametrize("source", SOURCES)
async def test_what_was_accepted_before_is_ended_before_any_call(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: ScriptedProvider,
    database_url: str,
    source: str,
) -> None:
    gone = await notifications.insert("gone", address="Gone@example.com", category="news")
    other = await notifications.insert("other", address=GONE, category="receipts")
    await suppress(notifications, source=source, category="news")
    with capture_logs() as logs:
        await start_worker(database_url, provider)
        await eventually(lambda: ended(notifications, gone))
        await eventually(lambda: ended(notifications, other))
        row = await notifications.get(gone)
        assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("SUPPRESSED", SOURCES[source][1], 0)
        assert row["finished_at"]
        assert await notifications.events(gone) == ["SUPPRESSED"]
        assert await notifications.history(gone) == []
        assert provider.requests == {other: 1}
        await eventually(lambda: any(line["event"] == "job.suppressed" for line in logs))
    (line,) = [line for line in logs if line["event"] == "job.suppressed"]
    assert (line["notification_id"], line["reason"]) == (str(gone), SOURCES[source][1])
    assert "example.com" not in str(line).lower()


async def test_between_two_attempts_an_opt_out_ends_it(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    provider.script(GONE, Outcome(Answer.TRANSIENT, code="421"))
    provider.gate.clear()
    id_ = await notifications.insert("gone", address=GONE)
    await start_worker(database_url, provider)
    await eventually(lambda: bool(provider.seen))
    await suppress(notifications)
    provider.gate.set()
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"], row["provider_code"]) == ("SUPPRESSED", 1, "421")
    assert provider.requests == {id_: 1}


async def test_what_may_have_been_delivered_is_not_called_suppressed_and_not_sent_again(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("unsure", address=GONE, maybe_delivered=True, attempt_count=1)
    await suppress(notifications)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("FAILED", "OUTCOME_UNKNOWN", 1)
    assert await notifications.events(id_) == ["FAILED"]
    assert not provider.seen


async def test_while_the_breaker_is_open_a_suppressed_probe_is_no_answer_and_the_next_one_goes(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.lanes SET opening = 1, opened_at = now(), cause = '503', probe_at = now(),"
        " probe_delay = '5 s' WHERE channel = 'EMAIL'"
    )
    gone = await notifications.insert("gone", address=GONE)
    other = await notifications.insert("other", attempt_count=1)  # so that it is not the first to be chosen
    await suppress(notifications)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, other))
    assert await notifications.status(gone) == "SUPPRESSED"
    assert provider.requests == {other: 1}


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Database(login(database_url, "worker"), name="test", size=2) as database:
        yield Store(database)


async def claim(store: Store) -> list[Claim]:
    return await store.claim_due(
        "EMAIL",
        limit=64,
        classes=[3, 2, 1],
        due_for=timedelta(),
        token=uuid4(),
        worker_id=uuid4(),
        lease=timedelta(minutes=1),
        take_suspect=True,
    )


async def test_an_opt_out_holds_for_every_claim_that_begins_after_its_commit(
    store: Store, notifications: Notifications, database_url: str
) -> None:
    await notifications.insert("before", address=GONE)
    owner = await asyncpg.connect(database_url)
    try:
        async with owner.transaction():
            await suppress(Notifications(owner))
            (before,) = await claim(store)
        await notifications.insert("after", address=GONE)
        await notifications.insert("suspect", address=GONE, expiries=2)
        after = await claim(store)
    finally:
        await owner.close()
    assert before.suppressed_by == []
    assert [one.suppressed_by for one in after] == [["OPTED_OUT"]] * 2


async def test_an_old_token_suppresses_nothing_and_writes_no_event(store: Store, notifications: Notifications) -> None:
    id_ = await notifications.insert("gone", address=GONE)
    await suppress(notifications)
    (lost,) = await claim(store)
    await notifications.connection.execute("UPDATE notifyqueue.notifications SET claim_token = gen_random_uuid()")
    before = await notifications.get(id_)
    assert await store.end_unsent([Record(lost, suppressed(lost, "OPTED_OUT"))]) == set()
    assert await notifications.get(id_) == before
    assert await notifications.events(id_) == []


# Required categories.


async def require(notifications: Notifications, *categories: str) -> None:
    """As the owner sets it for the tenant `default`."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.tenants SET required_categories = $1 WHERE id = 'default'", list(categories)
    )


async def test_a_required_category_is_accepted_for_whoever_opted_out_and_nobody_else(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await require(notifications, "receipts", "resets")
    await suppress(notifications)
    await suppress(notifications, category="receipts")
    assert await reason(scheduler, schedule("a", category="receipts")) == ""
    assert await reason(scheduler, schedule("b", category="resets")) == ""
    assert await reason(scheduler, schedule("c", category="news")) == "RECIPIENT_OPTED_OUT"
    assert await reason(scheduler, schedule("d")) == "RECIPIENT_OPTED_OUT"
    await suppress(notifications, source="COMPLAINED")
    assert await reason(scheduler, schedule("e", category="receipts")) == "ADDRESS_SUPPRESSED"


async def claim_probe(store: Store) -> list[Claim]:
    return await store.claim_probe("EMAIL", token=uuid4(), worker_id=uuid4(), lease=timedelta(minutes=1))


@pytest.mark.parametrize("probe", [False, True])
async def test_a_required_category_is_sent_to_whoever_opted_out_and_nobody_else(
    store: Store, notifications: Notifications, probe: bool
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await require(notifications, "receipts")
    await suppress(notifications)
    await suppress(notifications, tenant_id="other")
    await suppress(notifications, "full@example.com", source="BOUNCED")
    columns: dict[str, dict[str, Any]] = {
        "receipt": {"category": "receipts"},
        "news": {"category": "news"},
        "theirs": {"category": "receipts", "tenant_id": "other"},
        "full": {"category": "receipts", "address": "full@example.com"},
    }
    named = {await notifications.insert(name, **{"address": GONE, **more}): name for name, more in columns.items()}
    found: dict[str, Sequence[str]] = {}
    while claims := await (claim_probe(store) if probe else claim(store)):
        found |= {named[one.notification_id]: one.suppressed_by for one in claims}
    assert found == {"receipt": [], "news": ["OPTED_OUT"], "theirs": ["OPTED_OUT"], "full": ["BOUNCED"]}


# What providers find out.

PERMANENT = Ended(reason="ADDRESS_REJECTED", kind="ATTEMPT_FAILED", code="550", suppresses="BOUNCED")


async def rows(notifications: Notifications) -> list[tuple[Any, ...]]:
    found = await notifications.connection.fetch(
        "SELECT channel, address, category, source, code, created_by FROM notifyqueue.suppressions ORDER BY address"
    )
    return [tuple(row) for row in found]


@pytest.mark.parametrize(
    ("opted_out", "source", "ends"),
    [(False, "BOUNCED", ("FAILED", "ADDRESS_REJECTED")), (True, "OPTED_OUT", ("SUPPRESSED", "OPTED_OUT"))],
)
async def test_an_address_that_a_provider_refuses_for_good_is_suppressed_with_its_code_and_time(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: ScriptedProvider,
    database_url: str,
    opted_out: bool,
    source: str,
    ends: tuple[str, str],
) -> None:
    provider.script("Gone@example.com", Outcome(Answer.PERMANENT_ADDRESS, "550-5.1.1", opted_out=opted_out))
    id_ = await notifications.insert("gone", address="Gone@example.com", category="news")
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"]) == ends
    assert await rows(notifications) == [("EMAIL", GONE, "", source, "550-5.1.1", "")]
    at = await notifications.connection.fetchval("SELECT created_at FROM notifyqueue.suppressions")
    assert at == row["finished_at"]  # one statement wrote both
    later = await notifications.insert("later", address=GONE)
    await eventually(lambda: ended(notifications, later))
    assert await notifications.status(later) == "SUPPRESSED"
    assert provider.requests == {id_: 1}


@pytest.mark.parametrize("answer", [one for one in Answer if one not in (Answer.PERMANENT_ADDRESS, Answer.THROTTLED)])
async def test_no_other_answer_suppresses_anybody(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: ScriptedProvider,
    database_url: str,
    answer: Answer,
) -> None:
    provider.otherwise = Outcome(answer, "550")
    id_ = await notifications.insert("one", max_attempts=1, at_most_once=True)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    assert await rows(notifications) == []


async def test_an_old_token_suppresses_no_address(store: Store, notifications: Notifications) -> None:
    await notifications.insert("gone", address=GONE)
    (lost,) = await claim(store)
    await notifications.connection.execute("UPDATE notifyqueue.notifications SET claim_token = gen_random_uuid()")
    assert await store.end_unsent([Record(lost, PERMANENT)]) == set()
    assert await rows(notifications) == []


async def test_a_group_suppresses_each_address_once_and_what_stands_stays(
    store: Store, notifications: Notifications
) -> None:
    await suppress(notifications, "a0@example.com", source="BOUNCED", code="first")
    for number in range(6):
        await notifications.insert(f"gone-{number}", address=f"a{number // 2}@example.com")
    assert len(await store.end_unsent([Record(one, PERMANENT) for one in await claim(store)])) == 6
    assert [(address, code) for _, address, _, _, code, _ in await rows(notifications)] == [
        ("a0@example.com", "first"),
        ("a1@example.com", "550"),
        ("a2@example.com", "550"),
    ]


async def test_addresses_are_suppressed_in_one_order_whatever_the_order_of_their_notifications(
    store: Store, notifications: Notifications
) -> None:
    """So that two groups which find the same ones wait for each other, and not both."""
    for number in (3, 1, 2):
        await notifications.insert(f"gone-{number}", address=f"a{number}@example.com")
    await store.end_unsent([Record(one, PERMANENT) for one in await claim(store)])
    in_order = await notifications.connection.fetch("SELECT address FROM notifyqueue.suppressions ORDER BY id")
    assert [row["address"] for row in in_order] == [f"a{number}@example.com" for number in (1, 2, 3)]


async def test_while_dead_addresses_are_taken_for_our_own_mistake_nobody_is_suppressed(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    """Of the last hundred a fifth are believed. From then on it is a setting of ours, and the breaker opens."""
    for number in range(80):
        await notifications.insert(f"good-{number}", address=f"g{number}@example.com")
    await start_worker(database_url, provider, worker_concurrency=1)
    await eventually(lambda: all_sent(notifications, 80), within=30)
    provider.otherwise = Outcome(Answer.PERMANENT_ADDRESS, "550")
    for number in range(40):
        await notifications.insert(f"dead-{number}", address=f"d{number}@example.com")
    await eventually(lambda: is_open(notifications), within=30)
    assert len(await rows(notifications)) == 20
    assert (await notifications.statuses())["FAILED"] == 20


async def all_sent(notifications: Notifications, count: int) -> bool:
    return await notifications.statuses() == {"SENT": count}


async def is_open(notifications: Notifications) -> bool:
    return bool(
        await notifications.connection.fetchval(
            "SELECT count(*) FROM notifyqueue.lanes WHERE channel = 'EMAIL' AND opened_at IS NOT NULL"
        )
    )
