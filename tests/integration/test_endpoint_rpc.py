"""Naming, listing and forgetting endpoints, through a real server."""

import asyncio
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import dispatcher_pb2, dispatcher_pb2_grpc
from services.dispatcher import rpc
from services.dispatcher.signature import key_of
from shared.server import Service
from tests.integration.test_dispatcher_rig import Rig, start_dispatcher

Stub = dispatcher_pb2_grpc.WebhookDispatcherStub

URL = "https://example.com/hook"


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


@pytest.fixture
async def stub(rig: Rig, stack: AsyncExitStack) -> Stub:
    return await start_dispatcher(stack, rig.url, webhook_max_endpoints=5, webhook_allow_addresses="10.0.0.0/8")


async def create(stub: Stub, url: str = URL, *types: str) -> dispatcher_pb2.CreateEndpointResponse:
    return await stub.CreateEndpoint(dispatcher_pb2.CreateEndpointRequest(url=url, event_types=types))


async def delete(stub: Stub, endpoint_id: str) -> None:
    await stub.DeleteEndpoint(dispatcher_pb2.DeleteEndpointRequest(endpoint_id=endpoint_id))


async def listed(stub: Stub, size: int = 0, token: str = "") -> dispatcher_pb2.ListEndpointsResponse:
    return await stub.ListEndpoints(dispatcher_pb2.ListEndpointsRequest(page_size=size, page_token=token))


def reason(error: grpc.aio.AioRpcError) -> str:
    trailers = dict(error.trailing_metadata() or ())
    return str(trailers["error-reason"])


def fields(error: grpc.aio.AioRpcError) -> list[str]:
    trailers = dict(error.trailing_metadata() or ())
    details = trailers["grpc-status-details-bin"]
    assert isinstance(details, bytes)
    for detail in status_pb2.Status.FromString(details).details:
        found = error_details_pb2.BadRequest()
        if detail.Unpack(found):
            return [violation.field for violation in found.field_violations]
    return []


async def test_a_created_endpoint_is_answered_whole_and_its_secret_once(rig: Rig, stub: Stub) -> None:
    request = dispatcher_pb2.CreateEndpointRequest(
        url=URL, event_types=["notification.sent", "notification.sent"], description="orders"
    )
    created = await stub.CreateEndpoint(request)
    endpoint = created.endpoint
    assert UUID(endpoint.endpoint_id).version == 7
    assert (endpoint.url, list(endpoint.event_types), endpoint.description) == (URL, ["notification.sent"], "orders")
    assert (endpoint.enabled, endpoint.disabled_reason) == (True, "")
    assert endpoint.create_time.seconds > 0
    assert len(key_of(created.secret)) == 32
    assert (await listed(stub)).endpoints == [endpoint]


async def test_a_secret_is_sealed_at_rest_and_bound_to_its_endpoint(rig: Rig, stub: Stub) -> None:
    created = await create(stub)
    endpoint_id = UUID(created.endpoint.endpoint_id)
    sealed = (await rig.stored_endpoint(endpoint_id))["sealed_secret"]
    key = key_of(created.secret)
    assert key not in sealed
    assert created.secret.encode() not in sealed
    assert rig.keys.open("default", endpoint_id, sealed) == key
    assert await rig.value("SELECT count(DISTINCT sealed_secret) FROM notifyqueue.webhook_endpoints") == 1


async def test_an_endpoint_that_cannot_be_is_refused_with_every_path(rig: Rig, stub: Stub) -> None:
    request = dispatcher_pb2.CreateEndpointRequest(
        url="http://127.0.0.1/", event_types=["notification.sent", "everything"], description="x" * 256
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.CreateEndpoint(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason(refused.value) == "REQUEST_INVALID"
    assert fields(refused.value) == ["url", "event_types[1]", "description"]
    assert await rig.value("SELECT count(*) FROM notifyqueue.webhook_endpoints") == 0


async def test_what_the_installation_allows_can_be_named(stub: Stub) -> None:
    assert (await create(stub, "http://10.1.2.3:8080/")).secret


async def test_a_tenant_has_a_bounded_number_of_endpoints(rig: Rig, stub: Stub) -> None:
    made = [await create(stub) for _ in range(5)]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await create(stub)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reason(refused.value) == "QUOTA_EXCEEDED"
    await delete(stub, made[0].endpoint.endpoint_id)
    assert (await create(stub)).secret
    await rig.value("UPDATE notifyqueue.tenants SET endpoint_quota = 6 RETURNING 1")  # its own number
    assert (await create(stub)).secret
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await create(stub)
    assert reason(refused.value) == "QUOTA_EXCEEDED"


async def test_pages_are_newest_first_and_complete(stub: Stub) -> None:
    made = [(await create(stub)).endpoint.endpoint_id for _ in range(5)]
    seen: list[str] = []
    token = ""
    while True:
        page = await listed(stub, 2, token)
        seen += [endpoint.endpoint_id for endpoint in page.endpoints]
        token = page.next_page_token
        if not token:
            break
    assert seen == made[::-1]


async def test_a_token_of_another_list_is_refused(stub: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(stub, token="bm90IG91cnM=")
    assert reason(refused.value) == "PAGE_TOKEN_INVALID"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(stub, size=-1)
    assert fields(refused.value) == ["page_size"]


async def test_a_deleted_endpoint_is_not_listed_and_deleting_it_again_is_no_fault(stub: Stub) -> None:
    kept, gone = [(await create(stub)).endpoint.endpoint_id for _ in range(2)]
    await delete(stub, gone)
    await delete(stub, gone.upper())
    assert [endpoint.endpoint_id for endpoint in (await listed(stub)).endpoints] == [kept]


async def test_what_is_unknown_or_anothers_is_not_found_alike(rig: Rig, stub: Stub) -> None:
    theirs = await rig.endpoint(tenant=await rig.tenant("other"))
    messages = []
    for endpoint_id in (theirs, uuid4()):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await delete(stub, str(endpoint_id))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert reason(refused.value) == "RESOURCE_NOT_FOUND"
        messages.append(refused.value.details())
    assert len(set(messages)) == 1
    assert (await listed(stub)).endpoints == []
    assert (await rig.stored_endpoint(theirs))["deleted_at"] is None


@pytest.mark.parametrize("endpoint_id", ["", "1", "{%s}", "urn:uuid:%s", "%s ", "nil"])
async def test_an_id_that_is_none_is_refused(stub: Stub, endpoint_id: str) -> None:
    text = endpoint_id % uuid4() if "%" in endpoint_id else endpoint_id
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await delete(stub, text)
    assert fields(refused.value) == ["endpoint_id"]


async def test_endpoints_made_at_once_are_as_many_as_were_asked_for(stub: Stub) -> None:
    made = await asyncio.gather(*(create(stub) for _ in range(5)))
    assert len({created.endpoint.endpoint_id for created in made}) == 5
    assert len({created.secret for created in made}) == 5


async def test_the_service_has_the_name_that_operators_type() -> None:
    assert rpc.NAME == "notifyqueue.v1.WebhookDispatcher"
    assert isinstance(rpc.service(None), Service)  # type: ignore[arg-type]
    assert {f"{rpc.NAME}/DrainDispatcher"} == rpc.UNTIMED
