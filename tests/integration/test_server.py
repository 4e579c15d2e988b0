"""The server as it stands in production, layers and all, called by a real client."""

import asyncio
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status
from pydantic import SecretStr

from shared import logs
from shared.batching import Contention
from shared.database import Database
from shared.errors import DatabaseUnavailable, ResourceNotFound
from shared.layers import NONE_OF_ITS_OWN, Bounds, Context, bounded, current_call, errors_mapped, logged
from shared.process import Process
from shared.server import Health, HealthServer, Server, Service
from shared.settings import ProcessSettings
from tests.integration.conftest import ANYWHERE
from tests.waiting import eventually, settled

NAME = "test.v1.Probe"
SECRET = "hunter2"
MEBIBYTE = 1024 * 1024
PATIENCE = 60.0

SERIALIZE = StringValue.SerializeToString

Detail = TypeVar("Detail", bound=Message)

inherited: ContextVar[str] = ContextVar("inherited")


@dataclass
class Probe:
    """A service whose methods do what a test needs, and say what became of them."""

    calls: int = 0
    running: int = 0
    produced: int = 0
    closed_by: "list[asyncio.Task[Any] | None]" = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def Echo(self, request: StringValue, _: Context) -> StringValue:
        self.calls += 1
        return request

    async def Fail(self, request: StringValue, _: Context) -> StringValue:
        raise RuntimeError(f"the password is {SECRET}") from ValueError(SECRET)

    async def Refuse(self, request: StringValue, _: Context) -> StringValue:
        raise ResourceNotFound("notification")

    async def Lose(self, request: StringValue, _: Context) -> StringValue:
        raise DatabaseUnavailable from ConnectionResetError(SECRET)

    async def Collide(self, request: StringValue, _: Context) -> StringValue:
        raise Contention from ValueError(SECRET)

    async def TimeOut(self, request: StringValue, _: Context) -> StringValue:
        raise TimeoutError(SECRET)

    async def Wait(self, request: StringValue, _: Context) -> StringValue:
        self.running += 1
        try:
            await self.go_on.wait()
            return request
        finally:
            self.running -= 1

    async def WaitLong(self, request: StringValue, context: Context) -> StringValue:
        return await self.Wait(request, context)

    async def Count(self, request: StringValue, _: Context) -> AsyncIterator[StringValue]:
        for number in range(3):
            yield StringValue(value=f"{request.value} {number}")

    async def CountAndFail(self, request: StringValue, context: Context) -> AsyncIterator[StringValue]:
        async for item in self.Count(request, context):
            yield item
        raise RuntimeError(SECRET)

    async def Write(self, request: StringValue, context: Context) -> None:
        for number in range(3):
            await context.write(StringValue(value=f"{request.value} {number}"))

    async def Flood(self, _: StringValue, __: Context) -> AsyncIterator[StringValue]:
        """More than the client reads, so that it waits in a write."""
        token = inherited.set("flood")
        task = asyncio.current_task()
        try:
            while True:
                self.produced += 1
                yield StringValue(value="x" * MEBIBYTE)
        finally:
            inherited.reset(token)  # raises in a task that is not its own
            self.closed_by.append(task if asyncio.current_task() is task else None)

    async def Watch(self, request: StringValue, _: Context) -> AsyncIterator[StringValue]:
        self.running += 1
        try:
            yield request
            await self.go_on.wait()
        finally:
            self.running -= 1

    async def Persist(self, request: StringValue, _: Context) -> AsyncIterator[StringValue]:
        """Goes on writing to a client that has gone."""
        self.running += 1
        try:
            yield request
            with suppress(asyncio.CancelledError):
                await self.go_on.wait()
            while True:
                yield request
        finally:
            self.running -= 1

    async def Nested(self, request: Message, _: Context) -> StringValue:
        return StringValue(value="fine")

    def service(self) -> Service:
        unary = ("Echo", "Fail", "Refuse", "Lose", "Collide", "TimeOut", "Wait", "WaitLong")
        streams = ("Count", "CountAndFail", "Write", "Flood", "Watch", "Persist")
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(getattr(self, name), StringValue.FromString, SERIALIZE)
            for name in unary
        }
        handlers |= {
            name: grpc.unary_stream_rpc_method_handler(getattr(self, name), StringValue.FromString, SERIALIZE)
            for name in streams
        }
        handlers["Nested"] = grpc.unary_unary_rpc_method_handler(self.Nested, ListValue.FromString, SERIALIZE)
        return Service(NAME, lambda server: server.add_generic_rpc_handlers((generic(handlers),)))


def generic(handlers: dict[str, Any]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(NAME, handlers)


class Client:
    """Calls a probe by its methods' names."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.health: Any = health_pb2_grpc.HealthStub(channel)

    def call(self, method: str, value: str = "", **options: Any) -> Any:
        return self._multi("unary_unary", method)(StringValue(value=value), **options)

    def stream(self, method: str, value: str = "", **options: Any) -> Any:
        return self._multi("unary_stream", method)(StringValue(value=value), **options)

    def send(self, method: str, data: bytes) -> Any:
        """Whatever these bytes are."""
        multi: Any = self.channel.unary_unary(f"/{NAME}/{method}")
        return multi(data)

    def _multi(self, shape: str, method: str) -> Any:
        path = method if method.startswith("/") else f"/{NAME}/{method}"
        return getattr(self.channel, shape)(
            path, request_serializer=StringValue.SerializeToString, response_deserializer=StringValue.FromString
        )

    async def status(self, service: str) -> str:
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@dataclass(frozen=True)
class Refusal:
    """What a client is told."""

    code: grpc.StatusCode
    message: str
    details: Sequence[AnyMessage]
    trailers: dict[str, str | bytes]

    def detail(self, kind: type[Detail]) -> Detail:
        found = kind()
        (packed,) = [detail for detail in self.details if detail.TypeName() == kind.DESCRIPTOR.full_name]
        assert packed.Unpack(found)
        return found

    @property
    def reason(self) -> str:
        return self.detail(ErrorInfo).reason

    @property
    def request_id(self) -> str:
        return self.detail(RequestInfo).request_id


async def refusal(call: Awaitable[object]) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    status: Any = rpc_status.from_call(error)  # type: ignore[arg-type]
    trailers = dict(error.trailing_metadata())
    return Refusal(error.code(), error.details() or "", status.details if status else (), trailers)


Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def serve(stack: AsyncExitStack, probe: Probe) -> Serve:
    """Serves the probe as a process of ours does, and answers a client."""

    async def start(
        *,
        untimed: frozenset[str] = frozenset(),
        large: frozenset[str] = frozenset(),
        bounds: Mapping[str, Bounds] = NONE_OF_ITS_OWN,
        **settings: Any,
    ) -> Client:
        chosen = ProcessSettings(database_url=SecretStr("postgresql://nowhere"), **ANYWHERE | settings)
        process = Process("test", chosen, stack)
        database = Database("postgresql://nowhere", name="test")
        await process.serve(database, [probe.service()], untimed=untimed, large=large, bounds=bounds)
        return await connect(stack, process.port)

    return start


async def connect(stack: AsyncExitStack, port: int) -> Client:
    return Client(await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}")))


class Lines:
    """The log of the process, as it is written."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def text(self) -> str:
        return self.stream.getvalue()

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.text().splitlines()) if line["event"] == name]


@pytest.fixture
def lines() -> Iterator[Lines]:
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    lines = Lines()
    logs.configure("test", "DEBUG")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=lines.stream), cache_logger_on_first_use=False)
    yield lines
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


# Errors.


async def test_a_call_is_answered(serve: Serve) -> None:
    client = await serve()
    assert (await client.call("Echo", "hello")).value == "hello"


async def test_an_unexpected_exception_is_internal_and_says_nothing(serve: Serve, lines: Lines) -> None:
    client = await serve()
    told = await refusal(client.call("Fail"))
    assert (told.code, told.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert told.message == "internal error; quote the request id"
    assert [detail.TypeName() for detail in told.details] == ["google.rpc.ErrorInfo", "google.rpc.RequestInfo"]
    assert SECRET not in repr(told)
    (line,) = lines.events("rpc.failed")
    assert line["request_id"] == told.request_id
    assert (line["error"], line["cause"]) == ("RuntimeError", "ValueError")
    assert SECRET not in lines.text()


async def test_a_timeout_of_the_handlers_own_is_internal(serve: Serve) -> None:
    client = await serve()
    assert (await refusal(client.call("TimeOut"))).reason == "INTERNAL"


async def test_a_refusal_is_told_by_its_code_reason_and_metadata(serve: Serve) -> None:
    client = await serve()
    told = await refusal(client.call("Refuse"))
    info = told.detail(ErrorInfo)
    assert told.code is grpc.StatusCode.NOT_FOUND
    assert told.message == "no such notification"
    assert (info.domain, info.reason, dict(info.metadata)) == (
        "notifyqueue",
        "RESOURCE_NOT_FOUND",
        {"resource": "notification"},
    )


@pytest.mark.parametrize("method", ["Fail", "Refuse", "Lose", "Unknown"])
async def test_reason_and_request_id_are_plain_trailers_too(serve: Serve, method: str) -> None:
    client = await serve()
    told = await refusal(client.call(method))
    assert told.trailers["error-reason"] == told.reason
    assert told.trailers["request-id"] == told.request_id


async def test_what_made_a_refusal_is_logged_by_its_class(serve: Serve, lines: Lines) -> None:
    client = await serve()
    told = await refusal(client.call("Lose"))
    assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert told.detail(RetryInfo).retry_delay.seconds == 1
    assert [line["error"] for line in lines.events("rpc.cause")] == ["ConnectionResetError"]
    assert SECRET not in lines.text()


async def test_a_group_that_met_others_each_time_is_the_callers_to_try_again(serve: Serve, lines: Lines) -> None:
    client = await serve()
    told = await refusal(client.call("Collide"))
    assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert told.detail(RetryInfo).retry_delay.seconds == 1
    assert [line["error"] for line in lines.events("rpc.cause")] == ["shared.batching.Contention"]
    assert SECRET not in lines.text()


async def test_bytes_that_are_no_message_are_refused_before_the_method_runs(serve: Serve, probe: Probe) -> None:
    client = await serve()
    told = await refusal(client.send("Echo", b"\xff\xff\xff\xff"))
    assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
    (violation,) = told.detail(BadRequest).field_violations
    assert violation.description == "not a message of this type"
    assert probe.calls == 0


async def test_text_that_is_not_utf_8_is_refused(serve: Serve) -> None:
    client = await serve()
    assert (await refusal(client.send("Echo", b"\x0a\x01\xff"))).reason == "REQUEST_INVALID"


async def test_a_message_out_of_shape_is_refused_by_its_field(serve: Serve, probe: Probe) -> None:
    client = await serve()
    told = await refusal(client.call("Echo", f"{SECRET}\0"))
    (violation,) = told.detail(BadRequest).field_violations
    assert (told.reason, violation.field) == ("REQUEST_INVALID", "value")
    assert SECRET not in repr(told)
    assert probe.calls == 0


async def test_a_message_with_a_hundred_faults_is_refused_with_twenty(serve: Serve) -> None:
    client = await serve()
    message = ListValue()
    message.extend(["\0"] * 100)
    told = await refusal(client.send("Nested", message.SerializeToString()))
    assert told.reason == "REQUEST_INVALID"
    assert len(told.detail(BadRequest).field_violations) == 20


@pytest.mark.parametrize("method", [f"/{NAME}/Unknown", "/test.v1.Unknown/Echo", "/x"])
async def test_an_unknown_method_or_service_is_refused(serve: Serve, method: str) -> None:
    client = await serve()
    for begin in (client.call(method), read(client.stream(method))):
        told = await refusal(begin)
        assert (told.code, told.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")


async def read(stream: Any) -> list[str]:
    """What is still to come."""
    found = []
    while (item := await stream.read()) is not grpc.aio.EOF:
        found.append(getattr(item, "value", ""))
    return found


# Request ids.


async def trailer(call: Any) -> str:
    await call
    return str(dict(await call.trailing_metadata())["request-id"])


@pytest.mark.parametrize("asked", ["a", "7f3a-9c", "svc:orders_1.2", "x" * 64])
async def test_a_request_id_that_is_safe_is_kept(serve: Serve, lines: Lines, asked: str) -> None:
    client = await serve()
    metadata = (("x-request-id", asked),)
    assert await trailer(client.call("Echo", metadata=metadata)) == asked
    assert (await refusal(client.call("Fail", metadata=metadata))).request_id == asked
    assert {line["request_id"] for line in lines.events("rpc.done")} == {asked}


@pytest.mark.parametrize("asked", ["", "x" * 65, "two words", 'a"b', "a{b}", "a/b", "%0a"])
async def test_any_other_request_id_is_replaced(serve: Serve, asked: str) -> None:
    client = await serve()
    metadata = (("x-request-id", asked),)
    for given in (
        await trailer(client.call("Echo", metadata=metadata)),
        (await refusal(client.call("Fail", metadata=metadata))).request_id,
        (await refusal(client.call("Unknown", metadata=metadata))).request_id,
    ):
        assert re.fullmatch("[0-9a-f]{32}", given)


async def test_each_call_has_its_own_request_id(serve: Serve) -> None:
    client = await serve()
    assert len({await trailer(client.call("Echo")) for _ in range(5)}) == 5


# Bounds.


async def test_more_calls_than_it_may_have_are_refused_while_health_still_answers(serve: Serve, probe: Probe) -> None:
    client = await serve(max_calls=2)
    busy = [client.call("Wait", str(number)) for number in range(2)]
    await eventually(lambda: probe.running == 2)
    told = await refusal(client.call("Echo"))
    assert (told.code, told.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED")
    assert told.detail(RetryInfo).retry_delay.seconds == 1
    assert await client.status("") == "SERVING"
    probe.go_on.set()
    assert [(await call).value for call in busy] == ["0", "1"]
    assert (await client.call("Echo", "again")).value == "again"


async def test_a_stream_counts_while_it_is_open(serve: Serve, probe: Probe) -> None:
    client = await serve(max_calls=1)
    watching = client.stream("Watch")
    await watching.read()
    assert (await refusal(client.call("Echo"))).reason == "SERVER_OVERLOADED"
    probe.go_on.set()
    assert await read(watching) == []
    await eventually(lambda: succeeds(client))


async def succeeds(client: Client) -> bool:
    try:
        await client.call("Echo")
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_call_ends_at_the_clients_deadline(serve: Serve, probe: Probe, lines: Lines) -> None:
    client = await serve()
    told = await refusal(client.call("Wait", timeout=0.2))
    assert told.code is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: bool(lines.events("rpc.done")))
    assert probe.running == 0
    assert [line["code"] for line in lines.events("rpc.done")] == ["DEADLINE_EXCEEDED"]


@pytest.mark.parametrize("deadline", [None, PATIENCE])
async def test_a_call_ends_at_the_servers_bound(serve: Serve, probe: Probe, deadline: float | None) -> None:
    client = await serve(call_timeout=0.2)
    told = await refusal(client.call("Wait", timeout=deadline))
    assert (told.code, told.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    assert probe.running == 0


async def test_a_stream_ends_at_the_servers_bound(serve: Serve, probe: Probe) -> None:
    client = await serve(call_timeout=0.2)
    assert (await refusal(read(client.stream("Watch")))).reason == "DEADLINE_EXCEEDED"
    assert probe.running == 0


async def test_a_method_that_may_take_longer_does(serve: Serve, probe: Probe) -> None:
    client = await serve(call_timeout=0.2, untimed=frozenset({f"{NAME}/WaitLong"}))
    long = client.call("WaitLong", "late")
    await eventually(lambda: probe.running == 1)
    assert (await refusal(client.call("Wait"))).reason == "DEADLINE_EXCEEDED"
    probe.go_on.set()
    assert (await long).value == "late"


async def test_a_method_that_may_take_longer_still_ends_at_the_clients_deadline(serve: Serve, probe: Probe) -> None:
    client = await serve(untimed=frozenset({f"{NAME}/WaitLong"}))
    assert (await refusal(client.call("WaitLong", timeout=0.2))).code is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: probe.running == 0)


@pytest.mark.parametrize(
    ("size", "large", "fits"),
    [
        (MEBIBYTE // 4 - 100, frozenset(), True),
        (MEBIBYTE // 4 + 1, frozenset(), False),
        (4 * MEBIBYTE - 100, frozenset({f"{NAME}/Echo"}), True),
        (4 * MEBIBYTE + 1, frozenset({f"{NAME}/Echo"}), False),
    ],
)
async def test_a_message_has_a_quarter_of_a_mebibyte_and_a_large_one_four(
    serve: Serve, probe: Probe, size: int, large: frozenset[str], fits: bool
) -> None:
    client = await serve(large=large)
    call = client.call("Echo", "x" * size)
    if fits:
        assert len((await call).value) == size
    else:
        # Not RESOURCE_EXHAUSTED, as grpc would say by itself: that is what may be repeated.
        assert (await refusal(call)).reason == "REQUEST_INVALID"
        assert probe.calls == 0


async def test_a_message_that_is_far_too_large_is_not_even_read(serve: Serve, probe: Probe) -> None:
    client = await serve()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.call("Echo", "x" * (8 * MEBIBYTE + 1))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert probe.calls == 0


# Clients that leave.


async def test_a_client_that_cancels_ends_the_method_and_leaves_nothing(
    serve: Serve, probe: Probe, lines: Lines
) -> None:
    client = await serve(max_calls=1)
    call = client.call("Wait")
    await eventually(lambda: probe.running == 1)
    call.cancel()
    await eventually(lambda: succeeds(client))
    assert probe.running == 0
    (line,) = [line for line in lines.events("rpc.done") if line["method"].endswith("/Wait")]
    assert (line["code"], line["level"]) == ("CANCELLED", "warning")


async def test_a_connection_that_is_lost_ends_the_method(serve: Serve, probe: Probe, stack: AsyncExitStack) -> None:
    client = await serve()
    call = client.call("Wait")
    await eventually(lambda: probe.running == 1)
    await client.channel.close()
    await eventually(lambda: probe.running == 0)
    assert call.cancelled()


# Streams.


@pytest.mark.parametrize("method", ["Count", "Write"])
async def test_a_stream_brings_everything_in_order(serve: Serve, method: str) -> None:
    client = await serve()
    assert await read(client.stream(method, "item")) == ["item 0", "item 1", "item 2"]


async def test_a_stream_that_fails_has_brought_what_came_before(serve: Serve, lines: Lines) -> None:
    client = await serve()
    stream = client.stream("CountAndFail", "item")
    brought = [(await stream.read()).value for _ in range(3)]
    assert brought == ["item 0", "item 1", "item 2"]
    assert (await refusal(read(stream))).reason == "INTERNAL"
    assert SECRET not in lines.text()


async def test_a_generator_that_waits_in_a_write_is_closed_in_its_own_task_when_the_client_leaves(
    serve: Serve, probe: Probe, lines: Lines
) -> None:
    client = await serve(max_calls=1)
    stream = client.stream("Flood")
    await stream.read()
    await eventually(lambda: probe.produced > 1)
    stream.cancel()
    await eventually(lambda: bool(probe.closed_by))
    assert probe.closed_by[0] is not None
    await eventually(lambda: succeeds(client))
    assert [line["code"] for line in lines.events("rpc.done") if line["method"].endswith("/Flood")] == ["CANCELLED"]
    assert not lines.events("library.log"), "grpc or asyncio found something at fault"


async def test_a_write_to_a_client_that_has_gone_is_no_fault(serve: Serve, probe: Probe, lines: Lines) -> None:
    client = await serve()
    stream = client.stream("Persist")
    await stream.read()
    stream.cancel()
    await eventually(lambda: bool(lines.events("rpc.done")))
    assert probe.running == 0
    assert [line["code"] for line in lines.events("rpc.done")] == ["CANCELLED"]
    assert not lines.events("rpc.failed")


async def test_a_generator_that_waits_for_news_is_closed_when_the_client_leaves(serve: Serve, probe: Probe) -> None:
    client = await serve()
    stream = client.stream("Watch")
    await stream.read()
    stream.cancel()
    await eventually(lambda: probe.running == 0)


async def test_the_call_is_known_while_it_runs_and_no_longer(serve: Serve, probe: Probe) -> None:
    seen = []

    async def look(request: StringValue, _: Context) -> StringValue:
        seen.append(current_call.get())
        return request

    probe.Echo = look  # type: ignore[method-assign]
    client = await serve()
    await client.call("Echo", metadata=(("x-request-id", "r1"),))
    assert [(call.method, call.request_id, call.tenant) for call in seen] == [(f"{NAME}/Echo", "r1", "default")]
    assert current_call.get(None) is None


# Start and stop.


@pytest.fixture
async def health() -> AsyncIterator[Health]:
    async with Health([NAME]) as health:
        yield health


@pytest.fixture
def server(probe: Probe, health: Health) -> Server:
    return make_server(probe, health)


def make_server(probe: Probe, health: Health, *, grace: float = 3600) -> Server:
    """Not yet entered; by default with all the time in the world to stop."""
    server = Server("127.0.0.1:0", [probe.service()], health=health, grace=grace)
    server.layers = [logged, errors_mapped, bounded(100, lambda: server.stopping)]
    return server


async def leave(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        await server.__aexit__()


async def test_a_server_that_stops_refuses_what_begins(server: Server, stack: AsyncExitStack) -> None:
    async with server:
        client = await connect(stack, server.port)
        server.stopping = True
        told = await refusal(client.call("Echo"))
        assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert told.detail(RetryInfo).retry_delay.seconds == 1


async def answers_through_a_stop(health: Health) -> list[str]:
    """Of calls that the server has when it begins to stop, and that end right after."""
    probe = Probe()
    server = await make_server(probe, health).__aenter__()
    async with AsyncExitStack() as stack:
        client = await connect(stack, server.port)
        calls = [client.call("Wait", str(number)) for number in range(4)]
        await eventually(lambda: probe.running == 4)
        leaving = asyncio.create_task(leave(server))
        await settled(1)
        assert not leaving.done()
        probe.go_on.set()
        await leaving
        return [(await call).value for call in calls]


async def test_leaving_waits_for_the_calls_under_way_and_they_get_their_answers(health: Health) -> None:
    for _ in range(50):  # whether an answer is still being sent when the stop goes on is a matter of luck
        assert await answers_through_a_stop(health) == ["0", "1", "2", "3"]


async def test_leaving_waits_for_the_streams_under_way(server: Server, probe: Probe, stack: AsyncExitStack) -> None:
    await server.__aenter__()
    client = await connect(stack, server.port)
    stream = client.stream("Watch", "news")
    await eventually(lambda: probe.running == 1)
    leaving = asyncio.create_task(leave(server))
    await eventually(lambda: server.stopping)
    assert not leaving.done()
    probe.go_on.set()
    assert await read(stream) == ["news"]
    await leaving


async def test_leaving_ends_what_takes_longer_than_the_grace(
    probe: Probe, health: Health, stack: AsyncExitStack
) -> None:
    async with make_server(probe, health, grace=0.1) as server:
        client = await connect(stack, server.port)
        call = client.call("Wait")
        await eventually(lambda: probe.running == 1)
    assert (await refusal(call)).code is grpc.StatusCode.UNAVAILABLE
    await eventually(lambda: probe.running == 0)


async def test_open_streams_of_health_and_reflection_do_not_hold_up_the_stop(
    server: Server, stack: AsyncExitStack
) -> None:
    await server.__aenter__()
    client = await connect(stack, server.port)
    watch = client.health.Watch(health_pb2.HealthCheckRequest())
    await watch.read()
    reflection = reflecting(client, "v1")
    await reflection.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await reflection.read()
    await leave(server)
    for stream in (watch, reflection):
        assert (await refusal(read(stream))).code is grpc.StatusCode.UNAVAILABLE


async def test_a_watch_whose_client_has_gone_is_no_fault_of_the_stop(server: Server, stack: AsyncExitStack) -> None:
    await server.__aenter__()
    client = await connect(stack, server.port)
    watch = client.health.Watch(health_pb2.HealthCheckRequest())
    await watch.read()
    with structlog.testing.capture_logs() as logged:
        watch.cancel()
        await leave(server)
    assert not [line for line in logged if line["log_level"] == "error"]


async def test_an_open_health_watch_does_not_cut_off_a_call(
    server: Server, probe: Probe, stack: AsyncExitStack
) -> None:
    await server.__aenter__()
    client = await connect(stack, server.port)
    watch = client.health.Watch(health_pb2.HealthCheckRequest())
    await watch.read()
    call = client.call("Wait", "kept")
    await eventually(lambda: probe.running == 1)
    leaving = asyncio.create_task(leave(server))
    async with asyncio.timeout(PATIENCE):
        await refusal(read(watch))
    assert not leaving.done()
    probe.go_on.set()
    assert (await call).value == "kept"
    await leaving


async def test_a_server_that_was_left_takes_no_connections(server: Server, stack: AsyncExitStack) -> None:
    async with server:
        port = server.port
    client = await connect(stack, port)
    assert (await refusal(client.call("Echo"))).code is grpc.StatusCode.UNAVAILABLE


async def test_a_second_server_on_the_same_port_fails(server: Server, probe: Probe, health: Health) -> None:
    async with server:
        second = Server(f"127.0.0.1:{server.port}", [probe.service()], health=health, grace=0)
        with pytest.raises(RuntimeError, match="bind"):
            await second.__aenter__()
        probes = HealthServer(f"127.0.0.1:{server.port}", health)
        with pytest.raises(RuntimeError, match="bind"):
            await probes.__aenter__()


# Health and reflection.


async def test_a_process_lives_while_its_services_are_not_ready(serve: Serve) -> None:
    client = await serve()
    assert await client.status("") == "SERVING"
    assert await client.status(NAME) == "NOT_SERVING"


async def test_probes_are_answered_at_a_port_of_their_own(
    server: Server, health: Health, stack: AsyncExitStack
) -> None:
    async with server, HealthServer("127.0.0.1:0", health) as probes:
        for port in (server.port, probes.port):
            client = await connect(stack, port)
            await health.set_ready(False)
            assert [await client.status(""), await client.status(NAME)] == ["SERVING", "NOT_SERVING"]
            await health.set_ready(True)
            assert [await client.status(""), await client.status(NAME)] == ["SERVING", "SERVING"]


async def test_at_the_port_of_the_probes_is_nothing_else(health: Health, stack: AsyncExitStack) -> None:
    async with HealthServer("127.0.0.1:0", health) as probes:
        client = await connect(stack, probes.port)
        assert (await refusal(client.call("Echo"))).code is grpc.StatusCode.UNIMPLEMENTED
        assert (await refusal(read(reflecting(client, "v1")))).code is grpc.StatusCode.UNIMPLEMENTED


def sent(client: Client, method: str, data: bytes) -> Any:
    """These bytes, to a method of health or reflection: what it answers or streams."""
    if method.endswith("/ServerReflectionInfo"):
        both: Any = client.channel.stream_stream(method)
        return read(both([data]))
    if method.endswith("/Watch"):
        watch: Any = client.channel.unary_stream(method)
        return read(watch(data))
    check: Any = client.channel.unary_unary(method)
    return check(data)


HEALTH = ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"]
REFLECTION = [f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")]


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x0a\x01\xff"], ids=["no message", "no UTF-8"])
async def test_health_and_reflection_refuse_what_is_no_message_without_an_exceptions_words(
    server: Server, health: Health, stack: AsyncExitStack, data: bytes
) -> None:
    async with server, HealthServer("127.0.0.1:0", health) as probes:
        for port, methods in ((server.port, [*HEALTH, *REFLECTION]), (probes.port, HEALTH)):
            client = await connect(stack, port)
            for method in methods:
                told = await refusal(sent(client, method, data))
                assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
                assert told.message == "request: not a message of this type"


async def test_a_watch_of_health_sees_every_change(server: Server, health: Health, stack: AsyncExitStack) -> None:
    async with server:
        client = await connect(stack, server.port)
        watch = client.health.Watch(health_pb2.HealthCheckRequest(service=NAME))
        seen = [(await watch.read()).status]
        for ready in (True, False):
            await health.set_ready(ready)
            seen.append((await watch.read()).status)
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert seen == [not_serving, serving, not_serving]


async def test_the_health_of_an_unknown_service_is_not_found(serve: Serve) -> None:
    client = await serve()
    assert (await refusal(client.status("test.v1.Unknown"))).code is grpc.StatusCode.NOT_FOUND


def reflecting(client: Client, version: str) -> Any:
    multi: Any = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return multi()


async def reflect(client: Client, version: str, **request: Any) -> reflection_pb2.ServerReflectionResponse:
    stream = reflecting(client, version)
    await stream.write(reflection_pb2.ServerReflectionRequest(**request))
    await stream.done_writing()
    answer: reflection_pb2.ServerReflectionResponse = await stream.read()
    return answer


async def listed(client: Client, version: str) -> set[str]:
    answer = await reflect(client, version, list_services="")
    return {service.name for service in answer.list_services_response.service}


versions = pytest.mark.parametrize("version", ["v1", "v1alpha"])


@versions
async def test_reflection_lists_all_services(serve: Serve, version: str) -> None:
    client = await serve()
    assert await listed(client, version) == {
        NAME,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@versions
async def test_reflection_describes_what_it_lists(serve: Serve, version: str) -> None:
    client = await serve()
    for name in await listed(client, version) - {NAME}:  # which has no contract
        answer = await reflect(client, version, file_containing_symbol=name)
        (file,) = answer.file_descriptor_response.file_descriptor_proto
        assert name.rpartition(".")[2].encode() in file


# The log.


@pytest.mark.parametrize(
    ("method", "code", "level"),
    [
        ("Echo", "OK", "debug"),
        ("Refuse", "NOT_FOUND", "warning"),
        ("Fail", "INTERNAL", "error"),
        ("Lose", "UNAVAILABLE", "error"),
    ],
)
async def test_a_call_is_one_line_as_loud_as_its_end(
    serve: Serve, lines: Lines, method: str, code: str, level: str
) -> None:
    client = await serve()
    await asyncio.gather(client.call(method, SECRET), return_exceptions=True)
    await eventually(lambda: bool(lines.events("rpc.done")))
    (line,) = lines.events("rpc.done")
    assert (line["method"], line["code"], line["level"]) == (f"{NAME}/{method}", code, level)
    assert line["duration_ms"] >= 0
    assert SECRET not in lines.text()


async def test_probes_and_reflection_are_not_logged_as_calls(serve: Serve, lines: Lines) -> None:
    client = await serve()
    await client.status("")
    await listed(client, "v1")
    await listed(client, "v1alpha")
    await client.call("Echo")
    await eventually(lambda: bool(lines.events("rpc.done")))
    assert [line["method"] for line in lines.events("rpc.done")] == [f"{NAME}/Echo"]
