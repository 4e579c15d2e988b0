"""WatchNotification as a client sees it: what is, every change, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc.aio
import pytest
from grpc import StatusCode
from pydantic import SecretStr

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler import __main__ as scheduler_process
from services.scheduler import watch
from services.scheduler.notification import Notification
from services.scheduler.settings import Settings
from services.scheduler.store import Store
from services.scheduler.watch import Hub
from shared.process import Process
from tests.conftest import login
from tests.integration.conftest import ANYWHERE, StartScheduler
from tests.integration.tcp_proxy import TcpProxy
from tests.notifications import Notifications
from tests.waiting import eventually

Stub = scheduler_pb2_grpc.SchedulerStub
Request = scheduler_pb2.WatchNotificationRequest
Status = notification_pb2.Notification.Status

WATCHERS, WATCHED = 1_000, 20
CLAIM = "status = 'PROCESSING', claim_token = $2, worker_id = $2, lease_expires_at = now(), attempt_count = 1"
RELEASE = "status = 'PENDING', claim_token = NULL, worker_id = NULL, lease_expires_at = NULL"
SEND = "status = 'SENT', finished_at = now(), claim_token = NULL, worker_id = NULL, lease_expires_at = NULL"


class Looking:
    """The store, and how often it was asked."""

    def __init__(self, store: watch.Store) -> None:
        self._store = store
        self.sizes: list[int] = []

    async def read_changed(self, known: Sequence[tuple[UUID, int]]) -> Mapping[UUID, Notification | None]:
        self.sizes.append(len(known))
        return await self._store.read_changed(known)


class Watching:
    """What the process has inside, which looks more often than it otherwise would."""

    hub: Hub
    looking: Looking

    def make(self, store: Store) -> Hub:
        self.looking = Looking(store)
        self.hub = Hub(self.looking, tick=0.05)
        return self.hub


@pytest.fixture(autouse=True)
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    made = Watching()
    monkeypatch.setattr(scheduler_process, "Hub", made.make)
    return made


class Stream:
    """An open call."""

    def __init__(self, stub: Stub, request: Request) -> None:
        self.call = stub.WatchNotification(request)

    async def next(self) -> notification_pb2.Notification:
        async with asyncio.timeout(20):
            answer = await self.call.read()
        assert isinstance(answer, scheduler_pb2.WatchNotificationResponse), "the stream has ended"
        return answer.notification

    async def status(self) -> str:
        return Status.Name((await self.next()).status).removeprefix("STATUS_")

    async def end(self) -> tuple[StatusCode, str]:
        """The code, and the reason where it is an error."""
        async with asyncio.timeout(20):
            code = await self.call.code()
            trailers = dict(await self.call.trailing_metadata() or ())
        return code, str(trailers.get("error-reason", ""))


async def change(notifications: Notifications, id_: UUID, columns: str) -> None:
    args = (id_, uuid4()) if "$2" in columns else (id_,)
    await notifications.connection.execute(
        f"UPDATE notifyqueue.notifications SET {columns}, revision = revision + 1 WHERE id = $1", *args
    )


@pytest.mark.parametrize("by", ["notification_id", "idempotency_key"])
async def test_a_stream_tells_what_is_and_every_change_and_ends_well(
    scheduler: Stub, notifications: Notifications, by: str
) -> None:
    id_ = await notifications.insert("order-1")
    stream = Stream(scheduler, Request(**{by: str(id_) if by == "notification_id" else "order-1"}))
    found = await stream.next()
    assert (found.notification_id, found.status, found.revision) == (str(id_), Status.STATUS_PENDING, 1)
    for columns, status in ((CLAIM, "PROCESSING"), (RELEASE, "PENDING"), (CLAIM, "PROCESSING"), (SEND, "SENT")):
        await change(notifications, id_, columns)
        assert await stream.status() == status
    assert await stream.end() == (StatusCode.OK, "")


async def test_of_what_has_ended_the_first_message_is_the_last(scheduler: Stub, notifications: Notifications) -> None:
    await notifications.insert("order-1")
    await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(idempotency_key="order-1"))
    stream = Stream(scheduler, Request(idempotency_key="order-1"))
    assert await stream.status() == "CANCELLED"
    assert await stream.end() == (StatusCode.OK, "")


async def test_a_change_that_is_committed_late_is_not_missed(
    scheduler: Stub, notifications: Notifications, watching: Watching, database_url: str
) -> None:
    """By the time of its beginning it is older than what was told meanwhile."""
    ids = [await notifications.insert(key) for key in ("late", "other")]
    late, other = (Stream(scheduler, Request(notification_id=str(id_))) for id_ in ids)
    assert [await late.status(), await other.status()] == ["PENDING", "PENDING"]
    slow = await asyncpg.connect(database_url)
    transaction = slow.transaction()
    await transaction.start()
    await change(Notifications(slow), ids[0], CLAIM)
    await change(notifications, ids[1], CLAIM)
    assert await other.status() == "PROCESSING"
    looked = len(watching.looking.sizes)
    await eventually(lambda: len(watching.looking.sizes) > looked + 2)
    await transaction.commit()
    await slow.close()
    assert await late.status() == "PROCESSING"


async def test_what_is_unknown_or_another_tenants_is_not_found(scheduler: Stub, notifications: Notifications) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    theirs = await notifications.insert("theirs", tenant_id="other")
    for request in (
        Request(notification_id=str(theirs)),
        Request(idempotency_key="theirs"),
        Request(notification_id=str(uuid4())),
    ):
        assert await Stream(scheduler, request).end() == (StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    for request in (Request(), Request(notification_id="order-1")):
        assert await Stream(scheduler, request).end() == (StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_what_is_removed_meanwhile_is_not_found(scheduler: Stub, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    stream = Stream(scheduler, Request(notification_id=str(id_)))
    await stream.next()
    await notifications.connection.execute("DELETE FROM notifyqueue.notifications")
    assert await stream.end() == (StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")


async def test_a_thousand_watchers_cost_one_statement_a_tick_and_leave_nothing_behind(
    scheduler: Stub, notifications: Notifications, watching: Watching
) -> None:
    ids = await notifications.connection.fetch(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority,"
        " due_at, next_attempt_at, max_attempts) SELECT 'default', n, '', 'EMAIL', 'a@example.com', 2, now(), now(), 5"
        f" FROM generate_series(1, {WATCHERS}) AS n RETURNING id"
    )
    streams = [Stream(scheduler, Request(notification_id=str(row["id"]))) for row in ids]
    for stream in streams:
        await stream.next()
    sizes = watching.looking.sizes
    await eventually(lambda: sizes[-3:] == [WATCHERS] * 3)  # all of them, in each
    await notifications.connection.execute(
        f"UPDATE notifyqueue.notifications SET {CLAIM.replace('$2', 'gen_random_uuid()')}, revision = 2"
    )
    assert {await stream.status() for stream in streams} == {"PROCESSING"}
    for stream in streams:
        stream.call.cancel()
    await eventually(lambda: watching.hub.watchers == 0)
    assert await watching.hub.look() is None
    assert min(sizes) > 0


async def test_a_client_whose_connection_is_gone_leaves_nothing_behind(
    database_url: str, notifications: Notifications, watching: Watching, stack: AsyncExitStack
) -> None:
    """It says no word: it neither cancels its calls nor closes its connection."""
    await notifications.insert("order-1")
    settings = Settings(
        database_url=SecretStr(login(database_url, "scheduler")), **ANYWHERE | {"max_watchers": WATCHED}
    )
    process = Process("scheduler", settings, stack)
    await scheduler_process.start(process, settings)
    stub = Stub(await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}")))
    await stub.GetNotification(scheduler_pb2.GetNotificationRequest(idempotency_key="order-1"))
    before = len(asyncio.all_tasks())
    async with TcpProxy("127.0.0.1", process.port) as proxy:
        theirs = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}"))
        streams = [Stream(Stub(theirs), Request(idempotency_key="order-1")) for _ in range(WATCHED)]
        for stream in streams:
            await stream.next()
        assert watching.hub.watchers == WATCHED
    await eventually(lambda: watching.hub.watchers == 0)
    assert await watching.hub.look() is None
    del streams, stream
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
    again = [Stream(stub, Request(idempotency_key="order-1")) for _ in range(WATCHED)]  # each place is free again
    assert {await stream.status() for stream in again} == {"PENDING"}


async def test_watchers_have_a_bound_of_their_own_and_take_nobody_elses_room(
    start_scheduler: StartScheduler, database_url: str, notifications: Notifications, watching: Watching
) -> None:
    await notifications.insert("order-1")
    stub = Stub(await start_scheduler(database_url, max_watchers=2, max_calls=1))
    streams = [Stream(stub, Request(idempotency_key="order-1")) for _ in range(2)]
    for stream in streams:
        await stream.next()
    refused = Stream(stub, Request(idempotency_key="order-1"))
    assert await refused.end() == (StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED")
    await stub.GetNotification(scheduler_pb2.GetNotificationRequest(idempotency_key="order-1"))
    streams[0].call.cancel()
    await eventually(lambda: watching.hub.watchers == 1)
    assert await Stream(stub, Request(idempotency_key="order-1")).status() == "PENDING"


async def test_a_stream_ends_at_its_own_bound_and_not_at_that_of_calls(
    start_scheduler: StartScheduler, database_url: str, notifications: Notifications, watching: Watching
) -> None:
    id_ = await notifications.insert("order-1")
    stub = Stub(await start_scheduler(database_url, call_timeout=0.2, watch_timeout=1.5))
    stream = Stream(stub, Request(idempotency_key="order-1"))
    await stream.next()
    looked = len(watching.looking.sizes)
    await eventually(lambda: len(watching.looking.sizes) > looked + 8)  # 0.4 s of them
    await change(notifications, id_, CLAIM)
    assert await stream.status() == "PROCESSING"
    assert await stream.end() == (StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    assert watching.hub.watchers == 0


async def test_a_stream_outlives_the_connections_of_the_database(
    scheduler: Stub, notifications: Notifications, watching: Watching
) -> None:
    id_ = await notifications.insert("order-1")
    stream = Stream(scheduler, Request(idempotency_key="order-1"))
    await stream.next()
    for _ in range(3):
        await notifications.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'notifyqueue scheduler%'"
        )
    await change(notifications, id_, CLAIM)
    assert await stream.status() == "PROCESSING"


@asynccontextmanager
async def started(url: str) -> AsyncIterator[tuple[Stub, Callable[[], Any]]]:
    """A scheduler, and how to stop it while its clients stay."""
    async with AsyncExitStack() as clients, AsyncExitStack() as servers:
        settings = Settings(database_url=SecretStr(login(url, "scheduler")), **ANYWHERE)
        process = Process("scheduler", settings, servers)
        await scheduler_process.start(process, settings)
        channel = await clients.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
        yield Stub(channel), servers.aclose


async def test_a_drain_ends_a_stream_at_once_so_that_its_client_goes_to_another(
    database_url: str, notifications: Notifications, watching: Watching
) -> None:
    await notifications.insert("order-1")
    async with started(database_url) as (stub, stop):
        stream = Stream(stub, Request(idempotency_key="order-1"))
        await stream.next()
        async with asyncio.timeout(20):  # less than the 30 s that calls under way would get
            await stop()
        assert await stream.end() == (StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert watching.hub.watchers == 0
