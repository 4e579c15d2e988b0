"""One key, one notification: whoever asks at once, through whichever scheduler, and whoever gives up on the way."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from typing import Any

import grpc.aio
import pytest
from pydantic import SecretStr

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.scheduler import __main__ as scheduler_process
from services.scheduler.judging import candidate
from services.scheduler.notification import Request
from services.scheduler.settings import Settings
from services.scheduler.store import Store
from shared.database import Database
from shared.process import Process
from tests.conftest import login
from tests.integration.conftest import ANYWHERE
from tests.notifications import Notifications
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub
Answer = scheduler_pb2.ScheduleNotificationResponse

REUSED = "ALREADY_EXISTS"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def schedulers(stack: AsyncExitStack, database_url: str) -> Sequence[Scheduler]:
    """Two processes' worth, which share the database and nothing else."""
    return [await start(stack, database_url) for _ in range(2)]


async def start(stack: AsyncExitStack, url: str) -> Scheduler:
    settings = Settings(database_url=SecretStr(login(url, "scheduler")), **ANYWHERE)
    process = Process("scheduler", settings, stack)
    await scheduler_process.start(process, settings)
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
    return scheduler_pb2_grpc.SchedulerStub(channel)


def schedule(key: str, text: str = "How are you?") -> scheduler_pb2.ScheduleNotificationRequest:
    fields: dict[str, Any] = {"address": "someone@example.com", "email": {"subject": "Hello", "text": text}}
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, **fields)


def as_stored(key: str) -> Request:
    """The request that `schedule` makes, as the store writes it."""
    content = {"subject": "Hello", "text": "How are you?"}
    return Request("default", key, "EMAIL", "someone@example.com", content, 2, None, None, False, "", None, {})


async def test_25_identical_requests_make_one_notification(
    schedulers: Sequence[Scheduler], notifications: Notifications
) -> None:
    answers = await asyncio.gather(*[schedulers[n % 2].ScheduleNotification(schedule("one")) for n in range(25)])
    assert Counter(answer.replayed for answer in answers) == {False: 1, True: 24}
    assert len({answer.notification.notification_id for answer in answers}) == 1
    assert await notifications.statuses() == {"PENDING": 1}


async def outcome(call: Awaitable[Answer]) -> str:
    try:
        return "replayed" if (await call).replayed else "written"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)


async def test_of_two_requests_for_a_key_one_wins_and_the_other_is_always_refused(
    schedulers: Sequence[Scheduler], notifications: Notifications
) -> None:
    for race in range(20):
        requests = [schedule(f"race {race}", text=f"text {number % 2}") for number in range(12)]
        calls = [schedulers[number // 2 % 2].ScheduleNotification(request) for number, request in enumerate(requests)]
        outcomes = await asyncio.gather(*map(outcome, calls))
        assert sorted(map(Counter, (outcomes[::2], outcomes[1::2])), key=len) == [
            {REUSED: 6},
            {"written": 1, "replayed": 5},
        ]
    assert await notifications.statuses() == {"PENDING": 20}


async def test_the_same_keys_in_opposite_orders_do_not_deadlock(
    schedulers: Sequence[Scheduler], stack: AsyncExitStack, notifications: Notifications
) -> None:
    one, other = schedulers
    for round_ in range(2):
        keys = [f"{round_} {number}" for number in range(200)]
        calls = [(one.ScheduleNotification(schedule(key)), key) for key in keys]
        calls += [(other.ScheduleNotification(schedule(key)), key) for key in reversed(keys)]
        answers = await asyncio.gather(*[call for call, _ in calls])
        written = [key for answer, (_, key) in zip(answers, calls, strict=True) if not answer.replayed]
        assert sorted(written) == sorted(keys)
    await stack.aclose()
    assert await deadlocks(notifications) == 0
    assert await notifications.statuses() == {"PENDING": 400}


async def test_groups_that_share_keys_do_not_deadlock(database_url: str, notifications: Notifications) -> None:
    keys = [f"{number:03}" for number in range(200)]
    async with Database(login(database_url, "scheduler"), name="test") as database:
        for round_ in range(10):
            orders = [keys, keys[::-1], keys[100:] + keys[:100], keys[::2] + keys[1::2]]
            groups = [[candidate(as_stored(f"{round_} {key}")) for key in order] for order in orders]
            written = await asyncio.gather(*[Store(database).insert_notifications(group, 5) for group in groups])
            assert len(list(chain(*written))) == len(keys)
    assert await halves(notifications) == 0
    assert await deadlocks(notifications) == 0


async def halves(notifications: Notifications) -> int:
    """Notifications without content, and contents without a notification."""
    return int(
        await notifications.connection.fetchval(
            "SELECT count(*) FROM notifyqueue.notifications AS n"
            " FULL JOIN notifyqueue.notification_contents AS c ON c.notification_id = n.id"
            " WHERE n.id IS NULL OR c.notification_id IS NULL"
        )
    )


async def deadlocks(notifications: Notifications) -> int:
    """Those of this database so far, once everybody else has left it: a backend tells its counts when it ends."""
    others = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    async def all_left() -> bool:
        return bool(await notifications.connection.fetchval(others))

    await eventually(all_left)
    return int(
        await notifications.connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    )


@pytest.mark.parametrize("commits", [False, True], ids=["gives up", "commits"])
async def test_who_comes_second_waits_for_what_becomes_of_the_first(
    schedulers: Sequence[Scheduler], notifications: Notifications, database_url: str, commits: bool
) -> None:
    async def second_waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    async with Database(login(database_url, "scheduler"), name="first", size=1) as database:
        try:
            async with database.transaction() as transaction:
                (first,) = (await Store(transaction).insert_notifications([candidate(as_stored("one"))], 5)).values()
                second = asyncio.ensure_future(schedulers[0].ScheduleNotification(schedule("one")))
                await eventually(second_waits)
                assert not second.done()
                if not commits:
                    raise GivesUp
        except GivesUp:
            pass
    answer = await second
    assert answer.replayed is commits
    assert (answer.notification.notification_id == str(first.id)) is commits
    assert await notifications.statuses() == {"PENDING": 1}


class GivesUp(Exception):
    """The first to write does not commit."""


async def test_a_key_is_free_again_when_its_notification_is_gone(
    schedulers: Sequence[Scheduler], notifications: Notifications
) -> None:
    first = await schedulers[0].ScheduleNotification(schedule("one"))
    await notifications.connection.execute("DELETE FROM notifyqueue.notifications")
    again = await schedulers[1].ScheduleNotification(schedule("one"))
    assert not again.replayed
    assert again.notification.notification_id != first.notification.notification_id


async def test_requests_for_many_keys_at_once_are_each_answered_their_own(
    schedulers: Sequence[Scheduler], notifications: Notifications
) -> None:
    keys = [f"{number}" for number in range(300)]
    calls = [schedulers[number % 2].ScheduleNotification(schedule(key)) for number, key in enumerate(keys)]
    answers = await asyncio.gather(*calls)
    assert [answer.notification.idempotency_key for answer in answers] == keys
    stored = await notifications.connection.fetch("SELECT idempotency_key, id FROM notifyqueue.notifications")
    assert {answer.notification.idempotency_key: answer.notification.notification_id for answer in answers} == {
        row["idempotency_key"]: str(row["id"]) for row in stored
    }


async def test_a_deadline_that_passes_leaves_no_half_of_anything(
    schedulers: Sequence[Scheduler], notifications: Notifications
) -> None:
    calls = [schedulers[0].ScheduleNotification(schedule(f"{n}"), timeout=0.001 * n) for n in range(40)]
    await asyncio.gather(*calls, return_exceptions=True)
    again = await asyncio.gather(*[schedulers[1].ScheduleNotification(schedule(f"{n}")) for n in range(40)])
    assert len({answer.notification.notification_id for answer in again}) == 40
    assert await halves(notifications) == 0
    assert await notifications.statuses() == {"PENDING": 40}
