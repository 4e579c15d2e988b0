"""Every RPC with every kind of key, on real services: who is served, who is refused, and that a refusal did nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from shared import auth, database
from shared.access import ACCESS, Role, permits
from shared.api_keys import ApiKey
from shared.auth import REMEMBERED, Callers
from shared.database import Database
from shared.errors import CredentialInvalid
from shared.store import Store
from shared.wire import Encoded
from tests.conftest import login
from tests.integration.tcp_proxy import TcpProxy
from tests.integration.test_dispatcher_rig import Receiver
from tests.integration.test_get_list_cancel import STATUSES
from tests.keyed import METHODS, Keyed, Metadata, Owner, bearer, start_keyed, with_other_secret
from tests.notifications import Notifications
from tests.waiting import eventually

HOUR = timedelta(hours=1)
EMAIL = {"subject": "Hello", "text": "How are you?"}
SCHEDULER, WORKER, DISPATCHER = "notifyqueue.v1.Scheduler", "notifyqueue.v1.Worker", "notifyqueue.v1.WebhookDispatcher"


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Owner]:
    connection = await asyncpg.connect(database_url)
    try:
        yield Owner(connection)
    finally:
        await connection.close()


@pytest.fixture
async def keyed(database_url: str, stack: AsyncExitStack) -> Keyed:
    return await start_keyed(stack, database_url)


TEMPLATES, RECIPIENTS = "notifyqueue.v1.Templates", "notifyqueue.v1.Recipients"
BAN = {"channel": "CHANNEL_EMAIL", "address": "gone@example.com", "source": "SUPPRESSION_SOURCE_OPTED_OUT"}
TEMPLATE = {"name": "shipped", "default_locale": "en", "variants": [{"locale": "en", "sms": {"text": "It left."}}]}


def notification(key: str) -> dict[str, Any]:
    return {"idempotency_key": key, "address": "someone@example.com", "email": EMAIL, "delay": "3600s"}


def requests(notification_id: str, dead_id: str, endpoint_id: str) -> dict[str, Mapping[str, Any]]:
    """For every RPC one that does something, if it may."""
    return {
        f"{SCHEDULER}/ScheduleNotification": notification("new"),
        f"{SCHEDULER}/BatchScheduleNotifications": {"requests": [notification("newer")]},
        f"{SCHEDULER}/GetNotification": {"notification_id": notification_id},
        f"{SCHEDULER}/CancelNotification": {"notification_id": notification_id},
        f"{SCHEDULER}/WatchNotification": {"notification_id": notification_id},  # ends, for it is cancelled
        f"{SCHEDULER}/RescheduleNotification": {"notification_id": notification_id, "delay": "60s"},
        f"{SCHEDULER}/ListNotifications": {},
        f"{SCHEDULER}/BulkCancelNotifications": {
            "filter": {"channel": "CHANNEL_EMAIL", "address": "someone@example.com"}
        },
        f"{SCHEDULER}/RedriveNotification": {"notification_id": dead_id},
        f"{SCHEDULER}/BulkRedriveNotifications": {
            "filter": {"channel": "CHANNEL_EMAIL", "address": "someone@example.com", "status": "STATUS_FAILED"}
        },
        f"{SCHEDULER}/GetQueueStats": {},
        f"{SCHEDULER}/PauseLane": {"channel": "CHANNEL_PUSH", "reason": "a test"},
        f"{SCHEDULER}/ResumeLane": {"channel": "CHANNEL_PUSH"},
        f"{TEMPLATES}/PutTemplate": TEMPLATE,
        f"{TEMPLATES}/GetTemplate": {"name": "shipped"},
        f"{TEMPLATES}/ListTemplates": {},
        f"{TEMPLATES}/RenderTemplate": {"name": "shipped"},
        f"{TEMPLATES}/DeleteTemplate": {"name": "shipped"},
        f"{RECIPIENTS}/PutSubscriber": {"subscriber": "ada", "email": "ada@example.com"},
        f"{RECIPIENTS}/GetSubscriber": {"subscriber": "ada"},
        f"{RECIPIENTS}/ListSubscribers": {},
        f"{RECIPIENTS}/DeleteSubscriber": {"subscriber": "ada"},
        f"{RECIPIENTS}/PutSuppression": BAN,
        f"{RECIPIENTS}/ListSuppressions": {},
        f"{RECIPIENTS}/DeleteSuppression": BAN,
        f"{RECIPIENTS}/BulkDeleteSuppressions": {"source": BAN["source"], "since": "2026-01-01T00:00:00Z"},
        f"{DISPATCHER}/CreateEndpoint": {"url": "http://127.0.0.1:9/"},
        f"{DISPATCHER}/ListEndpoints": {},
        f"{DISPATCHER}/DeleteEndpoint": {"endpoint_id": endpoint_id},
        f"{DISPATCHER}/GetDispatcherStatus": {},
        f"{DISPATCHER}/DrainDispatcher": {"timeout": "0s"},
        f"{DISPATCHER}/ResumeDispatcher": {},
        f"{WORKER}/GetWorkerStatus": {},
        f"{WORKER}/DrainWorker": {"timeout": "0s"},
        f"{WORKER}/ResumeWorker": {},
    }


@pytest.fixture
async def asked(keyed: Keyed, owner: Owner, notifications: Notifications) -> dict[str, Mapping[str, Any]]:
    """Of the tenant `default`."""
    key = await owner.key(Role.ADMIN)
    endpoint: Any = await keyed.call(f"{DISPATCHER}/CreateEndpoint", bearer(key), {"url": "http://127.0.0.1:9/"})
    notification_id = await notifications.insert("known", due_in=HOUR)
    failed = {"status": "FAILED", **STATUSES["FAILED"]}
    dead_id, _ = [await notifications.insert(key, **failed) for key in ("dead", "dead too")]
    return requests(str(notification_id), str(dead_id), endpoint.endpoint.endpoint_id)


def test_the_matrix_has_every_rpc() -> None:
    assert requests("", "", "").keys() == METHODS.keys() == ACCESS.keys()


async def bad_keys(owner: Owner) -> dict[tuple[str, str], Metadata]:
    found: dict[tuple[str, str], Metadata] = {("nobody", "none"): (), ("nobody", "unknown"): bearer(ApiKey.new())}
    for role in Role:
        found[role, "wrong"] = bearer(with_other_secret(await owner.key(role)))
        found[role, "expired"] = bearer(await owner.expired(role))
        found[role, "revoked"] = bearer(await owner.revoked(role))
    return found


async def test_a_key_that_is_none_is_refused_by_every_rpc_and_changes_nothing(
    keyed: Keyed, owner: Owner, asked: Mapping[str, Mapping[str, Any]]
) -> None:
    keys = await bad_keys(owner)
    before = await owner.everything()
    told = {
        (method, *kind): await keyed.told(method, metadata, request)
        for method, request in asked.items()
        for kind, metadata in keys.items()
    }
    assert told == dict.fromkeys(told, "CREDENTIAL_INVALID")
    assert await owner.everything() == before
    assert await phases(keyed, owner) == ["RUNNING", "RUNNING"]


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_do_what_the_table_says_and_a_refusal_changes_nothing(
    keyed: Keyed, owner: Owner, asked: Mapping[str, Mapping[str, Any]], role: Role
) -> None:
    metadata = bearer(await owner.key(role))
    before = await owner.everything()
    forbidden = [method for method in asked if not permits(method, role)]
    told = {method: await keyed.told(method, metadata, asked[method]) for method in forbidden}
    assert told == dict.fromkeys(forbidden, "ROLE_MISSING")
    assert await owner.everything() == before
    assert await phases(keyed, owner) == ["RUNNING", "RUNNING"]
    allowed = [method for method in asked if permits(method, role)]
    told = {method: await keyed.told(method, metadata, asked[method]) for method in allowed}
    # It has been cancelled by then.
    expected = {f"{SCHEDULER}/RescheduleNotification": "STATUS_CONFLICT"}
    assert told == {method: expected.get(method, "") for method in allowed}


async def test_another_tenants_ids_and_keys_are_not_found_and_stay_as_they_are(
    keyed: Keyed, owner: Owner, asked: Mapping[str, Mapping[str, Any]]
) -> None:
    tenant = await owner.tenant("other")
    theirs = {role: bearer(await owner.key(role, tenant)) for role in Role}
    by_id = {method: request for method, request in asked.items() if any(name.endswith("_id") for name in request)}
    by_key = {
        method: {**request, "notification_id": None, "idempotency_key": "known"}
        for method, request in by_id.items()
        if "notification_id" in request
    }
    cases = [(method, request, role) for kind in (by_id, by_key) for method, request in kind.items() for role in Role]
    assert len(by_id) == 6
    before = await owner.everything()
    told = [await keyed.told(method, theirs[role], _set(request)) for method, request, role in cases]
    assert told == ["RESOURCE_NOT_FOUND" if permits(method, role) else "ROLE_MISSING" for method, _, role in cases]
    assert await owner.everything() == before


def _set(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if value is not None}


async def phases(keyed: Keyed, owner: Owner) -> list[str]:
    """Of the worker and the dispatcher."""
    metadata = bearer(await owner.key(Role.PLATFORM))
    worker: Any = await keyed.call(f"{WORKER}/GetWorkerStatus", metadata)
    dispatcher: Any = await keyed.call(f"{DISPATCHER}/GetDispatcherStatus", metadata)
    named = [(worker.worker.DESCRIPTOR, worker.worker), (dispatcher.dispatcher.DESCRIPTOR, dispatcher.dispatcher)]
    return [
        descriptor.fields_by_name["phase"].enum_type.values_by_number[status.phase].name.removeprefix("PROCESS_PHASE_")
        for descriptor, status in named
    ]


# Two tenants.


@pytest.fixture
async def tenants(owner: Owner) -> list[Metadata]:
    """Admins of two."""
    return [bearer(await owner.key(Role.ADMIN, await owner.tenant(name))) for name in ("left", "right")]


async def test_two_tenants_with_equal_keys_and_addresses_see_nothing_of_each_other(
    keyed: Keyed, tenants: list[Metadata]
) -> None:
    made: list[Any] = [
        await keyed.call(f"{SCHEDULER}/ScheduleNotification", tenant, notification("order-1")) for tenant in tenants
    ]
    ids = [answer.notification.notification_id for answer in made]
    assert [answer.replayed for answer in made] == [False, False]
    assert len(set(ids)) == 2
    for tenant, id_ in zip(tenants, ids, strict=True):
        got: Any = await keyed.call(f"{SCHEDULER}/GetNotification", tenant, {"idempotency_key": "order-1"})
        assert got.notification.notification_id == id_
        for filter_ in ({}, {"channel": "CHANNEL_EMAIL", "address": "someone@example.com"}):
            listed: Any = await keyed.call(f"{SCHEDULER}/ListNotifications", tenant, {"filter": filter_})
            assert [found.notification_id for found in listed.notifications] == [id_]
        stats: Any = await keyed.call(f"{SCHEDULER}/GetQueueStats", tenant)
        assert [lane.scheduled.count for lane in stats.lanes] == [1, 0, 0]
    await keyed.call(f"{SCHEDULER}/CancelNotification", tenants[0], {"idempotency_key": "order-1"})
    other: Any = await keyed.call(f"{SCHEDULER}/GetNotification", tenants[1], {"idempotency_key": "order-1"})
    assert other.notification.DESCRIPTOR.enum_types_by_name["Status"].values_by_number[
        other.notification.status
    ].name == ("STATUS_PENDING")


async def test_a_page_token_is_worth_nothing_to_another_tenant(keyed: Keyed, tenants: list[Metadata]) -> None:
    for tenant in tenants:
        for number in range(2):
            await keyed.call(f"{SCHEDULER}/ScheduleNotification", tenant, notification(f"order-{number}"))
            await keyed.call(f"{DISPATCHER}/CreateEndpoint", tenant, {"url": "http://127.0.0.1:9/"})
            await keyed.call(f"{TEMPLATES}/PutTemplate", tenant, {**TEMPLATE, "name": f"shipped-{number}"})
            await keyed.call(f"{RECIPIENTS}/PutSuppression", tenant, {**BAN, "category": str(number)})
    lists = [f"{SCHEDULER}/ListNotifications", f"{DISPATCHER}/ListEndpoints", f"{TEMPLATES}/ListTemplates"]
    lists += [f"{RECIPIENTS}/ListSuppressions"]
    for method in lists:
        page: Any = await keyed.call(method, tenants[0], {"page_size": 1})
        request = {"page_size": 1, "page_token": page.next_page_token}
        assert await keyed.told(method, tenants[0], request) == ""
        assert await keyed.told(method, tenants[1], request) == "PAGE_TOKEN_INVALID"


async def test_a_tenants_events_go_to_its_own_endpoints(
    keyed: Keyed, owner: Owner, tenants: list[Metadata], stack: AsyncExitStack
) -> None:
    platform = bearer(await owner.key(Role.PLATFORM))
    await keyed.call(f"{DISPATCHER}/DrainDispatcher", platform)  # so that both tenants' events meet in one pass
    receivers = [await stack.enter_async_context(Receiver()) for _ in tenants]
    for tenant, receiver in zip(tenants, receivers, strict=True):
        endpoint = {"url": receiver.url, "event_types": ["notification.cancelled"]}
        assert await keyed.told(f"{DISPATCHER}/CreateEndpoint", tenant, endpoint) == ""
        await keyed.call(f"{SCHEDULER}/ScheduleNotification", tenant, notification("order-1"))
        await keyed.call(f"{SCHEDULER}/CancelNotification", tenant, {"idempotency_key": "order-1"})
    await keyed.call(f"{DISPATCHER}/ResumeDispatcher", platform)

    async def all_delivered() -> bool:
        open_ = await owner.connection.fetchval(
            "SELECT (SELECT count(*) FROM notifyqueue.webhook_events WHERE fanned_out_at IS NULL)"
            " + (SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE delivered_at IS NULL)"
        )
        return bool(open_ == 0)

    await eventually(all_delivered)
    told = [{json.loads(body)["data"]["notification_id"] for _, body in receiver.posts} for receiver in receivers]
    made = await owner.connection.fetch("SELECT id FROM notifyqueue.notifications ORDER BY tenant_id")
    assert told == [{str(row["id"])} for row in made]


async def test_the_acting_key_is_recorded(keyed: Keyed, owner: Owner, tenants: list[Metadata]) -> None:
    await keyed.call(f"{SCHEDULER}/ScheduleNotification", tenants[0], notification("order-1"))
    key = await owner.key(Role.SENDER, "left")
    await keyed.call(f"{SCHEDULER}/CancelNotification", bearer(key), {"idempotency_key": "order-1"})
    actors = await owner.connection.fetch("SELECT actor FROM notifyqueue.notification_history")
    assert [row["actor"] for row in actors] == [f"key:{key.id}"]


# Keys over time.


async def test_an_expiry_is_judged_by_the_database_and_a_revocation_takes_effect_in_time(
    owner: Owner, database_url: str
) -> None:
    now = 0.0
    key, brief = await owner.key(Role.SENDER), await owner.key(Role.SENDER, expires_in=HOUR)
    async with (
        Database(login(database_url, "worker"), name="test") as opened,
        Callers(Store(opened), clock=lambda: now) as callers,
    ):
        for good in (key, brief):
            assert (await callers.identify(bearer(good))).actor == f"key:{good.id}"
        await owner.revoke(key)
        await owner.connection.execute("UPDATE notifyqueue.api_keys SET expires_at = now() WHERE id = $1", brief.id)
        now = REMEMBERED - 0.1
        for good in (key, brief):
            assert (await callers.identify(bearer(good))).tenant == "default"
        now = REMEMBERED
        for bad in (key, brief):
            with pytest.raises(CredentialInvalid):
                await callers.identify(bearer(bad))


async def test_what_is_remembered_ends_with_the_key(owner: Owner, database_url: str) -> None:
    key = await owner.key(Role.SENDER, expires_in=timedelta(seconds=5))
    async with Database(login(database_url, "worker"), name="test") as opened:
        stored = (await Store(opened).find_api_keys([key.id, "unknown"]))[key.id]
    assert stored.good_for
    assert timedelta() < stored.good_for <= timedelta(seconds=5)


async def test_without_its_database_a_server_refuses_whom_it_does_not_know(
    database_url: str, stack: AsyncExitStack, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(database_url)
    assert parts.hostname
    proxy = await stack.enter_async_context(TcpProxy(parts.hostname, parts.port or 5432))
    user = parts.netloc.rpartition("@")[0]
    url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))
    monkeypatch.setattr(auth, "LOOKUP_TIMEOUT", 0.5)
    monkeypatch.setattr(database, "CONNECT_TIMEOUT", 0.5)
    keyed = await start_keyed(stack, url, DISPATCHER, shutdown_timeout=0.1)
    status = f"{DISPATCHER}/GetDispatcherStatus"  # which asks no database
    known, new = bearer(await owner.key(Role.PLATFORM)), bearer(await owner.key(Role.PLATFORM))
    assert await keyed.told(status, known) == ""
    proxy.become_black_hole()
    assert await keyed.told(status, known) == ""
    assert await keyed.told(status, new) == "DATABASE_UNAVAILABLE"
    proxy.heal()
    await eventually(lambda: _answers(keyed, status, new))


async def _answers(keyed: Keyed, method: str, metadata: Metadata) -> bool:
    return await keyed.told(method, metadata) == ""


# What needs no key, and what needs any.


async def reflected(channel: grpc.aio.Channel, version: str, metadata: Metadata, *, asks: bool = True) -> str:
    """Who is refused need not ask; a request that meets the end of its call is INTERNAL to the client's library."""
    multi: Any = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    stream = multi(metadata=metadata)
    try:
        if asks:
            await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await stream.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "listed" if answer.HasField("list_services_response") else "nothing"


async def test_probes_need_no_key_and_reflection_any_good_one(keyed: Keyed, owner: Owner) -> None:
    keys = [await owner.key(role) for role in Role]
    for service, channel in keyed.channels.items():
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", service):
            assert await stub.Check(health_pb2.HealthCheckRequest(service=name))
        for version in ("v1", "v1alpha"):
            assert [await reflected(channel, version, bearer(key)) for key in keys] == ["listed"] * len(keys)
            for bad in (None, with_other_secret(keys[0]), ApiKey.new()):
                assert await reflected(channel, version, bearer(bad), asks=False) == "UNAUTHENTICATED"


NOTHING_GOOD = {
    "no message": b"\xff\xff\xff\xff",
    "2 million requests": b"\x0a\x00" * 2_000_000,
    "too large": b"\x0a" * (4 * 1024 * 1024 + 1),
}


async def sent(keyed: Keyed, method: str, data: bytes, metadata: Metadata) -> str:
    """The reason of the refusal of these bytes."""
    unary: Any = keyed.channels[method.partition("/")[0]].unary_unary(f"/{method}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(data, metadata=metadata)
    return str(dict(refused.value.trailing_metadata() or ())["error-reason"])


@pytest.mark.parametrize("data", NOTHING_GOOD.values(), ids=NOTHING_GOOD)
async def test_who_calls_and_whether_it_may_is_judged_before_the_request_is_decoded(
    keyed: Keyed, owner: Owner, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    decode = Encoded.decode

    async def counted(self: Encoded, **options: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return await decode(self, **options)

    monkeypatch.setattr(Encoded, "decode", counted)
    platform, sender = bearer(await owner.key(Role.PLATFORM)), bearer(await owner.key(Role.SENDER))
    batch = f"{SCHEDULER}/BatchScheduleNotifications"
    for method in (batch, f"{DISPATCHER}/CreateEndpoint", f"{WORKER}/DrainWorker"):
        assert await sent(keyed, method, data, ()) == "CREDENTIAL_INVALID"
        assert await sent(keyed, method, data, bearer(ApiKey.new())) == "CREDENTIAL_INVALID"
    assert await sent(keyed, batch, data, platform) == "ROLE_MISSING"
    assert await sent(keyed, f"{WORKER}/DrainWorker", data, sender) == "ROLE_MISSING"
    assert decoded == 0
    assert await sent(keyed, batch, data, sender) == "REQUEST_INVALID"
    assert decoded == 1


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_who_asks_for_reflection_is_judged_before_the_request_is_decoded(keyed: Keyed, version: str) -> None:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    both: Any = keyed.channels[WORKER].stream_stream(path)
    call = both()
    with suppress(grpc.aio.AioRpcError):  # it may be refused before it is written
        await call.write(b"\xff\xff\xff\xff")
    assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_strangers_who_wait_to_be_looked_up_leave_room_for_those_who_are_known(
    stack: AsyncExitStack, database_url: str, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, waiting = asyncio.Event(), asyncio.Event()
    find = Store.find_api_keys

    async def slow(self: Store, ids: Any) -> Any:
        waiting.set()
        await gate.wait()
        return await find(self, ids)

    keyed = await start_keyed(stack, database_url, DISPATCHER, max_calls=1)
    status = f"{DISPATCHER}/GetDispatcherStatus"
    known = bearer(await owner.key(Role.PLATFORM))
    assert await keyed.told(status, known) == ""
    monkeypatch.setattr(Store, "find_api_keys", slow)
    strangers = [asyncio.create_task(keyed.told(status, bearer(ApiKey.new()))) for _ in range(5)]
    await waiting.wait()
    assert await keyed.told(status, known) == ""
    gate.set()
    assert set(await asyncio.gather(*strangers)) == {"CREDENTIAL_INVALID"}


async def test_a_tenant_is_told_neither_who_works_nor_who_paused_a_lane(keyed: Keyed, owner: Owner) -> None:
    platform, admin = bearer(await owner.key(Role.PLATFORM)), bearer(await owner.key(Role.ADMIN))
    pause = {"channel": "CHANNEL_EMAIL", "reason": "a test"}
    assert await keyed.told(f"{SCHEDULER}/PauseLane", platform, pause) == ""
    stats = f"{SCHEDULER}/GetQueueStats"

    async def a_worker_lives() -> bool:
        seen: Any = await keyed.call(stats, platform)
        return bool(seen.workers)

    await eventually(a_worker_lives)
    for metadata, sees in ((platform, True), (admin, False)):
        found: Any = await keyed.call(stats, metadata)
        (lane,) = [lane.lane for lane in found.lanes if lane.lane.HasField("pause")]
        assert lane.pause.reason == "a test"
        assert bool(lane.pause.actor) == sees
        assert bool(found.workers) == sees


async def test_many_calls_with_a_new_key_are_one_lookup_of_the_database(
    keyed: Keyed, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    find = Store.find_api_keys

    async def counted(self: Store, ids: Any) -> Any:
        asked.append(list(ids))
        return await find(self, ids)

    monkeypatch.setattr(Store, "find_api_keys", counted)
    key = await owner.key(Role.PLATFORM)
    status = f"{WORKER}/GetWorkerStatus"
    assert set(await asyncio.gather(*(keyed.told(status, bearer(key)) for _ in range(100)))) == {""}
    assert asked == [[key.id]]


async def test_with_authentication_off_everybody_is_the_default_tenant(
    database_url: str, stack: AsyncExitStack, owner: Owner
) -> None:
    keyed = await start_keyed(stack, database_url, auth="off")
    await keyed.call(f"{SCHEDULER}/ScheduleNotification", (), notification("order-1"))
    await keyed.call(f"{SCHEDULER}/CancelNotification", (), {"idempotency_key": "order-1"})
    row = await owner.connection.fetchrow(
        "SELECT n.tenant_id, h.actor FROM notifyqueue.notifications AS n, notifyqueue.notification_history AS h"
    )
    assert row
    assert tuple(row) == ("default", "anonymous")
    assert await keyed.told(f"{WORKER}/GetWorkerStatus", ()) == ""
    assert await keyed.told(f"{DISPATCHER}/ListEndpoints", ()) == ""
