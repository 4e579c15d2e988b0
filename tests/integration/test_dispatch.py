"""A whole dispatcher between a database and real receivers."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import grpc
import grpc.aio
import pytest
from aiohttp import web
from google.protobuf.duration_pb2 import Duration
from pydantic import SecretStr
from standardwebhooks import Webhook
from structlog.testing import capture_logs

from notifyqueue.v1 import dispatcher_pb2, dispatcher_pb2_grpc, process_pb2
from services.dispatcher import store as store_module
from services.dispatcher.claims import Claims
from services.dispatcher.configured import TENANT
from services.dispatcher.signature import new_secret
from shared.errors import DatabaseUnavailable
from tests.integration.test_dispatcher_rig import Receiver, Rig, answer, hang, start_dispatcher
from tests.waiting import eventually

Stub = dispatcher_pb2_grpc.WebhookDispatcherStub

RUNNING = process_pb2.PROCESS_PHASE_RUNNING
DRAINING = process_pb2.PROCESS_PHASE_DRAINING
DRAINED = process_pb2.PROCESS_PHASE_DRAINED


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


@pytest.fixture
async def receiver(stack: AsyncExitStack) -> Receiver:
    return await stack.enter_async_context(Receiver())


async def status(stub: Stub) -> dispatcher_pb2.DispatcherStatus:
    return (await stub.GetDispatcherStatus(dispatcher_pb2.GetDispatcherStatusRequest())).dispatcher


async def drain(stub: Stub, seconds: int = 30) -> dispatcher_pb2.DispatcherStatus:
    """When it returns DRAINED, every result is recorded."""
    request = dispatcher_pb2.DrainDispatcherRequest(timeout=Duration(seconds=seconds))
    return (await stub.DrainDispatcher(request)).dispatcher


async def delivered(rig: Rig, endpoint_id: UUID) -> int:
    found: int = await rig.value(
        "SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE endpoint_id = $1 AND delivered_at IS NOT NULL",
        endpoint_id,
    )
    return found


async def test_an_event_arrives_signed_at_an_endpoint_that_was_made_by_rpc(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    stub = await start_dispatcher(stack, rig.url)
    created = await stub.CreateEndpoint(dispatcher_pb2.CreateEndpointRequest(url=receiver.url))
    (event,) = await rig.events(1, reference="order-7")
    await rig.fetch("SELECT pg_notify('notifyqueue_events', '')")
    await receiver.received(1)
    assert (await drain(stub)).delivered == 1
    ((headers, body),) = receiver.posts
    assert Webhook(created.secret).verify(body, headers)["data"]["reference"] == "order-7"
    assert headers["webhook-id"] == str(event)
    assert body == await rig.value("SELECT body FROM notifyqueue.webhook_events")
    assert await delivered(rig, UUID(created.endpoint.endpoint_id)) == 1


async def test_every_attempt_carries_the_same_id_and_bytes_and_its_own_signed_time(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    receiver.respond = answer(500)
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    for attempt in (1, 2):
        await receiver.received(attempt)
        assert (await drain(stub)).phase == DRAINED
        await rig.make_due()
        await stub.ResumeDispatcher(dispatcher_pb2.ResumeDispatcherRequest())
    receiver.respond = answer(200)
    await receiver.received(3)
    await drain(stub)
    assert len({body for _, body in receiver.posts}) == len(set(receiver.ids())) == 1
    secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    for headers, body in receiver.posts:
        Webhook(secret).verify(body, headers)
    assert await rig.attempts(delivery) == [(1, 500, "STATUS"), (2, 500, "STATUS"), (3, 200, None)]


async def test_a_hanging_endpoint_with_a_thousand_events_holds_up_nobody(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    never = asyncio.Event()
    hanging = await stack.enter_async_context(Receiver(hang(never)))
    stuck = await rig.endpoint(hanging.url)
    healthy = await rig.endpoint(receiver.url)
    await rig.deliveries(1_000, stuck)
    stub = await start_dispatcher(stack, rig.url, webhook_concurrency=20, webhook_endpoint_concurrency=10)
    await receiver.received(1_000)  # the others hang until the test lets them go
    assert hanging.waiting <= 10
    assert len(hanging.posts) <= 10
    never.set()
    await hanging.received(1_000)
    assert (await drain(stub)).phase == DRAINED
    assert (await delivered(rig, healthy), await delivered(rig, stuck)) == (1_000, 1_000)
    assert set(Counter(receiver.ids()).values()) == set(Counter(hanging.ids()).values()) == {1}


async def test_two_dispatchers_share_the_work_and_the_cap(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    most = 0

    async def respond(_: web.Request) -> web.StreamResponse:
        nonlocal most
        most = max(most, receiver.waiting)
        await asyncio.sleep(0)
        return web.Response()

    receiver.respond = respond
    await rig.deliveries(500, await rig.endpoint(receiver.url))
    stubs = [await start_dispatcher(stack, rig.url, webhook_endpoint_concurrency=3) for _ in range(2)]
    await receiver.received(500)
    assert sum([(await drain(stub)).delivered for stub in stubs]) == 500
    assert set(Counter(receiver.ids()).values()) == {1}
    assert most <= 3


async def test_retry_after_pauses_the_endpoint_and_costs_what_waits_nothing(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    receiver.respond = answer(429, retry_after="3600")
    endpoint = await rig.endpoint(receiver.url)
    await rig.deliveries(5, endpoint)
    stub = await start_dispatcher(stack, rig.url, webhook_endpoint_concurrency=1)
    await receiver.received(1)
    await eventually(lambda: rig.value("SELECT paused_until > now() FROM notifyqueue.webhook_endpoints"))
    assert (await drain(stub)).failed == 1
    counts = await rig.fetch("SELECT attempt_count FROM notifyqueue.webhook_deliveries ORDER BY attempt_count")
    assert [row["attempt_count"] for row in counts] == [0, 0, 0, 0, 1]
    assert len(receiver.posts) == 1


async def test_gone_disables_the_endpoint(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    receiver.respond = answer(410)
    await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    await receiver.received(1)
    await drain(stub)
    (listed,) = (await stub.ListEndpoints(dispatcher_pb2.ListEndpointsRequest())).endpoints
    assert (listed.enabled, listed.disabled_reason) == (False, "GONE")
    assert await rig.value("SELECT give_up_reason FROM notifyqueue.webhook_deliveries") == "GONE"


async def test_after_its_last_attempt_a_delivery_is_given_up(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    receiver.respond = answer(403)
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url, webhook_max_attempts=2)
    await receiver.received(1)
    await drain(stub)
    await rig.make_due()
    await stub.ResumeDispatcher(dispatcher_pb2.ResumeDispatcherRequest())
    await receiver.received(2)
    await drain(stub)
    assert (await rig.delivery(delivery))["give_up_reason"] == "EXHAUSTED"
    assert await rig.attempts(delivery) == [(1, 403, "STATUS"), (2, 403, "STATUS")]


async def test_an_endpoint_whose_row_is_broken_fails_alone(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    sound = await rig.endpoint(receiver.url)
    broken = {name: await rig.endpoint(receiver.url) for name in ("secret", "other secret", "url")}
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET sealed_secret = 'x' WHERE id = $1", broken["secret"])
    await rig.execute(
        """
        UPDATE notifyqueue.webhook_endpoints SET sealed_secret = (
          SELECT sealed_secret FROM notifyqueue.webhook_endpoints WHERE id = $2) WHERE id = $1
        """,
        broken["other secret"],
        sound,
    )
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET url = 'no:\\where' WHERE id = $1", broken["url"])
    await rig.deliveries(1, sound)
    stub = await start_dispatcher(stack, rig.url)
    await receiver.received(1)
    await eventually(lambda: rig.value("SELECT count(*) = 4 FROM notifyqueue.webhook_attempts"))
    assert (await drain(stub)).failed == 3
    rows = await rig.fetch(
        """
        SELECT d.endpoint_id, a.error_class FROM notifyqueue.webhook_attempts AS a
        JOIN notifyqueue.webhook_deliveries AS d ON d.id = a.delivery_id
        """
    )
    assert {row["endpoint_id"]: row["error_class"] for row in rows} == {
        sound: None,
        **dict.fromkeys(broken.values(), "ENDPOINT_INVALID"),
    }


async def test_a_forbidden_address_is_an_attempt_like_any_other(rig: Rig, stack: AsyncExitStack) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint("http://127.0.0.2:9/"))
    stub = await start_dispatcher(stack, rig.url)
    await eventually(lambda: rig.value("SELECT count(*) FROM notifyqueue.webhook_attempts"))
    await drain(stub)
    assert await rig.attempts(delivery) == [(1, None, "ADDRESS_BLOCKED")]


async def test_a_success_that_cannot_be_recorded_is_recorded_later_and_never_as_a_failure(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store_module.Store.record_results
    outage = 3

    async def unavailable(self: store_module.Store, results: Any) -> Any:
        nonlocal outage
        if outage:
            outage -= 1
            raise DatabaseUnavailable
        return await record(self, results)

    monkeypatch.setattr(store_module.Store, "record_results", unavailable)
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    await receiver.received(1)
    assert (await drain(stub)).phase == DRAINED
    assert (outage, len(receiver.posts)) == (0, 1)
    assert await rig.attempts(delivery) == [(1, 204, None)]
    assert (await rig.delivery(delivery))["delivered_at"] is not None


async def test_what_a_deleted_endpoint_was_to_get_is_given_up(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    endpoint = await rig.endpoint(receiver.url)
    await rig.deliveries(20, endpoint)
    stub = await start_dispatcher(stack, rig.url, webhook_endpoint_concurrency=2)
    await receiver.received(2)
    await stub.DeleteEndpoint(dispatcher_pb2.DeleteEndpointRequest(endpoint_id=str(endpoint)))
    given_up = "SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE give_up_reason = 'ENDPOINT_DELETED'"
    await eventually(lambda: rig.value(f"SELECT ({given_up}) = 18"))
    never.set()
    await drain(stub)
    assert (await delivered(rig, endpoint), len(receiver.posts)) == (2, 2)


async def test_a_drain_waits_for_what_runs_and_claims_nothing_more(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    endpoint = await rig.endpoint(receiver.url)
    await rig.deliveries(4, endpoint)
    stub = await start_dispatcher(stack, rig.url, webhook_endpoint_concurrency=2)
    await receiver.received(2)
    first = await drain(stub, seconds=0)
    assert (first.phase, first.in_flight) == (DRAINING, 2)
    waiting = asyncio.ensure_future(drain(stub))
    never.set()
    last = await waiting
    assert (last.phase, last.in_flight, last.delivered) == (DRAINED, 0, 2)
    assert await delivered(rig, endpoint) == 2
    resumed = await stub.ResumeDispatcher(dispatcher_pb2.ResumeDispatcherRequest())
    assert resumed.dispatcher.phase == RUNNING
    await receiver.received(4)
    await drain(stub)
    assert await delivered(rig, endpoint) == 4


async def test_a_drain_goes_on_when_its_caller_leaves(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    await receiver.received(1)
    call = stub.DrainDispatcher(dispatcher_pb2.DrainDispatcherRequest(timeout=Duration(seconds=3600)))
    await eventually(lambda: draining(stub))
    call.cancel()
    never.set()
    assert (await drain(stub)).phase == DRAINED


async def draining(stub: Stub) -> bool:
    return (await status(stub)).phase == DRAINING


@pytest.fixture
def lost_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim is committed, and its answer lost."""
    ask = Claims._ask

    async def lose(self: Claims, token: UUID, room: int, began: float) -> None:
        await ask(self, token, room, began)
        raise DatabaseUnavailable

    monkeypatch.setattr(Claims, "_ask", lose)


async def held(rig: Rig) -> int:
    found: int = await rig.value("SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE claim_token IS NOT NULL")
    return found


@pytest.mark.usefixtures("lost_claims")
async def test_what_is_drained_holds_nothing_that_it_does_not_know_of(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    await eventually(lambda: held(rig))
    assert (await drain(stub)).phase == DRAINED
    row = await rig.delivery(delivery)
    assert (row["claim_token"], row["attempt_count"]) == (None, 0)


@pytest.mark.usefixtures("lost_claims")
async def test_leaving_gives_back_what_it_does_not_know_of(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    await rig.deliveries(1, await rig.endpoint(receiver.url))
    async with AsyncExitStack() as process:
        await start_dispatcher(stack, rig.url, within=process)
        await eventually(lambda: held(rig))
    assert await held(rig) == 0


@pytest.mark.usefixtures("lost_claims")
async def test_a_drain_lasts_until_the_database_took_back_what_may_be_held_and_leaving_does_not(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise DatabaseUnavailable

    await rig.deliveries(1, await rig.endpoint(receiver.url))
    async with AsyncExitStack() as process:
        stub = await start_dispatcher(stack, rig.url, within=process)
        await eventually(lambda: held(rig))
        with monkeypatch.context() as outage:
            outage.setattr(store_module.Store, "release_claim", unavailable)
            assert (await drain(stub, seconds=0)).phase == DRAINING
        assert (await drain(stub)).phase == DRAINED
        await stub.ResumeDispatcher(dispatcher_pb2.ResumeDispatcherRequest())
        await eventually(lambda: held(rig))
        monkeypatch.setattr(store_module.Store, "release_claim", unavailable)
    assert await held(rig) == 1


async def test_resuming_answers_those_who_wait_for_the_drain(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    await rig.deliveries(1, await rig.endpoint(receiver.url))
    stub = await start_dispatcher(stack, rig.url)
    await receiver.received(1)
    waiting = asyncio.ensure_future(drain(stub, seconds=3600))
    await eventually(lambda: draining(stub))
    await stub.ResumeDispatcher(dispatcher_pb2.ResumeDispatcherRequest())
    assert (await waiting).phase == RUNNING
    never.set()


@pytest.mark.parametrize("timeout", [Duration(seconds=-1), Duration(seconds=3601), Duration(seconds=3600, nanos=1)])
async def test_a_drain_that_nobody_would_wait_for_is_refused(
    rig: Rig,
    stack: AsyncExitStack,
    timeout: Duration,  # noqa: ASYNC109
) -> None:
    stub = await start_dispatcher(stack, rig.url)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.DrainDispatcher(dispatcher_pb2.DrainDispatcherRequest(timeout=timeout))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await status(stub)).phase == RUNNING


async def test_the_status_says_who_it_is_and_what_it_may_do(rig: Rig, stack: AsyncExitStack) -> None:
    stubs = [await start_dispatcher(stack, rig.url, webhook_concurrency=7) for _ in range(2)]
    first, second = [await status(stub) for stub in stubs]
    assert UUID(first.dispatcher_id) != UUID(second.dispatcher_id)
    assert (first.phase, first.concurrency, first.in_flight) == (RUNNING, 7, 0)
    assert first.start_time.seconds > 0


async def test_leaving_waits_for_what_runs_and_records_it(rig: Rig, stack: AsyncExitStack, receiver: Receiver) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    endpoint = await rig.endpoint(receiver.url)
    await rig.deliveries(1, endpoint)
    async with AsyncExitStack() as process:
        stub = await start_dispatcher(stack, rig.url, within=process)
        await receiver.received(1)
        leaving = asyncio.create_task(process.aclose())
        await eventually(lambda: draining(stub))
        never.set()
        await leaving
    assert await delivered(rig, endpoint) == 1


async def test_what_takes_longer_than_the_shutdown_is_left_to_its_lease(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    async with AsyncExitStack() as process:
        await start_dispatcher(process, rig.url, shutdown_timeout=0.01)
        await receiver.received(1)
    row = await rig.delivery(delivery)
    assert row["claim_token"] is not None
    assert (row["delivered_at"], row["given_up_at"], await rig.attempts(delivery)) == (None, None, [])
    never.set()


async def test_the_configured_endpoint_is_there_from_the_start_and_only_once(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    secret = new_secret()
    configured: dict[str, Any] = {"webhook_url": receiver.url, "webhook_secret": SecretStr(secret)}
    await asyncio.gather(*(start_dispatcher(stack, rig.url, **configured) for _ in range(3)))
    await eventually(lambda: rig.value("SELECT count(*) FROM notifyqueue.webhook_endpoints"))
    stub = await start_dispatcher(stack, rig.url, **configured)
    (listed,) = (await stub.ListEndpoints(dispatcher_pb2.ListEndpointsRequest())).endpoints
    assert listed.url == receiver.url
    await rig.events(1, tenant=TENANT)
    await rig.fetch("SELECT pg_notify('notifyqueue_events', '')")
    await receiver.received(1)
    headers, body = receiver.posts[0]
    assert Webhook(secret).verify(body, headers)


async def test_no_log_line_says_where_a_webhook_went_or_what_it_said(
    rig: Rig, stack: AsyncExitStack, receiver: Receiver
) -> None:
    receiver.respond = answer(500, location="http://127.0.0.1/secret-place")
    with capture_logs() as logs:
        stub = await start_dispatcher(stack, rig.url)
        created = await stub.CreateEndpoint(dispatcher_pb2.CreateEndpointRequest(url=f"{receiver.url}?token=hidden"))
        await rig.events(1, reference="order-7", labels='{"who": "somebody"}')
        await rig.fetch("SELECT pg_notify('notifyqueue_events', '')")
        await receiver.received(1)
        await drain(stub)
    said = str(logs)
    assert "webhook.retry" in said
    for hidden in ("127.0.0.1", "hidden", "order-7", "somebody", "secret-place", created.secret, "whsec_"):
        assert hidden not in said
