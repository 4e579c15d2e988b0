"""A tenant's limit as callers meet it: what is refused leaves no trace, and without a limit nothing is paid for it."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import errors_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.accept import Accept
from services.scheduler.accept_store import AcceptStore
from services.scheduler.judging import Accepted, Candidate, candidate
from services.scheduler.notification import Request
from services.scheduler.store import sql
from shared.database import Database, Executor
from shared.errors import ServerOverloaded
from tests.conftest import login
from tests.notifications import Notifications
from tests.recipients import PSEUDONYMS
from tests.templates import NoTemplates

SOON = timedelta(seconds=5)
Scheduler = scheduler_pb2_grpc.SchedulerStub


def schedule(key: str, **fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    least: dict[str, Any] = {"address": "someone@example.com", "email": {"subject": "Hello", "text": "How are you?"}}
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, **least | fields)


async def limit(notifications: Notifications, rate: float, burst: int) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.tenants SET accept_rate = $1::float8::numeric, accept_burst = $2", rate, burst
    )


async def buckets(notifications: Notifications) -> "list[asyncpg.Record]":
    return await notifications.connection.fetch("SELECT xmin::text, * FROM notifyqueue.accept_buckets")


async def test_who_is_over_the_limit_is_told_when_to_come_back_and_leaves_no_trace(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await limit(notifications, 0.01, 1)
    await scheduler.ScheduleNotification(schedule("a"))
    before = await buckets(notifications)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await scheduler.ScheduleNotification(schedule("b"))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers: dict[str, Any] = dict(refused.value.trailing_metadata())
    assert trailers["error-reason"] == "TENANT_LIMIT_EXCEEDED"
    info = error_details_pb2.RetryInfo()
    details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    assert any(detail.Unpack(info) for detail in details)
    assert timedelta(seconds=60) < info.retry_delay.ToTimedelta() <= timedelta(seconds=100)
    assert await notifications.statuses() == {"PENDING": 1}
    assert await buckets(notifications) == before


async def test_who_comes_back_when_it_was_told_to_goes_in(scheduler: Scheduler, notifications: Notifications) -> None:
    await limit(notifications, 0.01, 1)
    await scheduler.ScheduleNotification(schedule("a"))
    with pytest.raises(grpc.aio.AioRpcError):
        await scheduler.ScheduleNotification(schedule("b"))
    # As good as later: the debt is paid so much sooner.
    await notifications.connection.execute(
        "UPDATE notifyqueue.accept_buckets SET empty_at = empty_at - interval '100 s'"
    )
    assert not (await scheduler.ScheduleNotification(schedule("b"))).replayed


async def test_a_replay_spends_nothing_and_is_answered_over_the_limit(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await limit(notifications, 0.01, 1)
    await scheduler.ScheduleNotification(schedule("a"))
    before = await buckets(notifications)
    for _ in range(3):
        assert (await scheduler.ScheduleNotification(schedule("a"))).replayed
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await scheduler.ScheduleNotification(schedule("a", reference="another request"))
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert await buckets(notifications) == before


async def test_what_is_suppressed_or_invalid_spends_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    await limit(notifications, 0.01, 1)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source)"
        " VALUES ('default', 'EMAIL', 'gone@example.com', 'OPERATOR')"
    )
    for fields in ({"address": "gone@example.com"}, {"delay": timedelta(days=366)}):
        with pytest.raises(grpc.aio.AioRpcError):
            await scheduler.ScheduleNotification(schedule("a", **fields))
    assert await buckets(notifications) == []
    await scheduler.ScheduleNotification(schedule("a"))


async def test_a_batch_of_1000_is_charged_item_by_item(scheduler: Scheduler, notifications: Notifications) -> None:
    await limit(notifications, 0.01, 200)
    requests = [schedule(f"{number}") for number in range(1_000)]
    message = scheduler_pb2.BatchScheduleNotificationsRequest(requests=requests)
    results = (await scheduler.BatchScheduleNotifications(message)).results
    refused = [result.refused for result in results if result.HasField("refused")]
    assert {one.reason for one in refused} == {errors_pb2.ERROR_REASON_TENANT_LIMIT_EXCEEDED}
    assert len(refused) == 800
    assert min(one.retry_delay.ToTimedelta() for one in refused) > timedelta(seconds=60)
    assert await notifications.statuses() == {"PENDING": 200}
    again = (await scheduler.BatchScheduleNotifications(message)).results
    assert Counter(result.accepted.replayed for result in again if result.HasField("accepted")) == {True: 200}


async def test_a_limit_that_is_set_or_taken_away_holds_from_the_next_request(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await scheduler.ScheduleNotification(schedule("a"))
    await limit(notifications, 0.01, 1)
    await scheduler.ScheduleNotification(schedule("b"))
    with pytest.raises(grpc.aio.AioRpcError):
        await scheduler.ScheduleNotification(schedule("c"))
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = NULL, accept_burst = NULL")
    await scheduler.ScheduleNotification(schedule("c"))


class Watched(Database):
    """Remembers what it is asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="test", size=1)
        self.statements: list[str] = []
        self._names = {text: name for name, text in sql._texts.items()}

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]":
        self.statements.append(self._names[query])
        return await super().fetch(query, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        self.statements.append("transaction")
        async with super().transaction() as connection:
            yield connection


def asked(key: str) -> Request:
    content = {"subject": "Hello", "text": "How are you?"}
    return Request("default", key, "EMAIL", "someone@example.com", content, 2, None, None, False, "", None, {})


async def test_without_a_limit_a_group_takes_two_statements_and_no_bucket(
    database_url: str, notifications: Notifications
) -> None:
    async with Watched(login(database_url, "scheduler")) as database:
        accept = Accept(
            AcceptStore(database),
            NoTemplates(),
            pseudonyms=PSEUDONYMS,
            max_attempts=5,
            on_due=lambda _: None,
            soon=SOON,
        )
        answers = await accept.flush([candidate(asked(f"{number}")) for number in range(500)])
        assert all(isinstance(answer, Accepted) for answer in answers)
        assert database.statements == ["look_up_keys", "insert_notifications"]
    assert await buckets(notifications) == []


def asked_by(tenant: str) -> Candidate:
    return candidate(Request(**{name: getattr(asked("b"), name) for name in Request.__slots__} | {"tenant": tenant}))


async def test_a_bucket_that_somebody_holds_for_long_stops_its_tenant_and_nobody_else(
    notifications: Notifications, database_url: str
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('free'), ('limited'), ('z')")
    await limit(notifications, 100, 100)
    await notifications.connection.execute(
        "UPDATE notifyqueue.tenants SET accept_rate = NULL, accept_burst = NULL WHERE id = 'free'"
    )
    tenants = ("default", "free", "limited", "z")
    async with Watched(login(database_url, "scheduler")) as database:
        accept = Accept(
            AcceptStore(database),
            NoTemplates(),
            pseudonyms=PSEUDONYMS,
            max_attempts=5,
            on_due=lambda _: None,
            soon=SOON,
        )
        await accept.flush([candidate(asked("a"))])  # makes the bucket
        async with notifications.connection.transaction():
            await notifications.connection.execute("SELECT FROM notifyqueue.accept_buckets FOR UPDATE")
            database.statements.clear()
            (alone,) = await accept.flush([asked_by("free")])
            assert isinstance(alone, Accepted)
            assert database.statements == ["look_up_keys", "insert_notifications"]
            answers = await accept.flush([asked_by(tenant) for tenant in tenants])
        assert [type(answer) for answer in answers] == [ServerOverloaded, Accepted, Accepted, Accepted]
        (again,) = await accept.flush([asked_by("default")])
        assert isinstance(again, Accepted)
        assert not again.replayed
