"""The gRPC server of a process: services inside the layers, health beside them, reflection, and an orderly end.

grpc.aio 1.85: what it does by itself, and what is done about it here, is named at each place.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from shared.errors import MethodUnknown, ServerDraining
from shared.layers import Call, Context, Layer, abort, current_call, decode, errors_mapped, request_id
from shared.wire import MAX_LARGE, Encoded

log = structlog.get_logger()

EXEMPT = ("/grpc.health.", "/grpc.reflection.")
REFLECTION = "/grpc.reflection."
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
# What grpc itself refuses it refuses as RESOURCE_EXHAUSTED, without a reason, which reads like an invitation to come
# back. So the messages that are a little too large come through, and are told.
MAX_RECEIVED = 2 * MAX_LARGE

OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.so_reuseport", 0),  # a second process on this port must fail, not share it silently
    ("grpc.max_receive_message_length", MAX_RECEIVED),
    ("grpc.max_connection_age_ms", 30 * 60 * 1000),  # grpc adds 10 % jitter; clients spread over new replicas
    ("grpc.max_connection_age_grace_ms", 5 * 60 * 1000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),  # below the 30 s that clients are told
)


class Pipeline(grpc.aio.ServerInterceptor):
    """Runs each RPC inside the layers. Health and reflection pass by: probes must answer when the rest is full.

    Reflection has layers of its own: it tells what there is, and probes do not need it.

    grpc decodes nothing, for it would do so before any layer has seen who calls, and answer what it cannot decode with
    UNKNOWN and the text of the exception.
    """

    def __init__(self, layers: Sequence[Layer], reflection_layers: Sequence[Layer] = ()) -> None:
        self._layers = tuple(layers)
        self._reflection_layers = tuple(reflection_layers)
        self._watches: set[asyncio.Timeout] = set()
        self._stopping = False

    def end_watches(self) -> None:
        """Ends the open streams of health and reflection, for nobody would end them while the server stops."""
        self._stopping = True
        for watch in self._watches:
            watch.reschedule(0)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        metadata = tuple(handler_call_details.invocation_metadata or ())

        # Generated code names the class of a method's requests by its `FromString`.
        kind = handler and handler.request_deserializer.__self__

        def begin(request: object, context: Context) -> Call:
            request = Encoded(request, kind) if isinstance(request, bytes) else request
            return Call(method.removeprefix("/"), context, request, request_id(metadata))

        if method.startswith(EXEMPT):
            layers = self._reflection_layers if method.startswith(REFLECTION) else ()
            return handler and self._exempt(begin, handler, kind, layers)
        if handler is None:
            return grpc.unary_unary_rpc_method_handler(self._refuse_unknown(metadata))
        behaviour = handler.unary_stream if handler.response_streaming else handler.unary_unary
        run = self._streaming(begin, behaviour) if handler.response_streaming else self._unary(begin, behaviour)
        make = (
            grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
        )
        return make(run, None, handler.response_serializer)

    @contextlib.asynccontextmanager
    async def _inside(self, call: Call, layers: Sequence[Layer]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(current_call.reset, current_call.set(call))
            for layer in layers:
                await stack.enter_async_context(layer(call))
            yield

    def _unary(self, begin: Callable[[object, Context], Call], behaviour: Any) -> Any:
        # A real coroutine function: grpc runs anything else in a thread.
        async def run(data: bytes, context: Context) -> Any:
            call = begin(data, context)
            async with self._inside(call, self._layers):
                return await behaviour(await decode(call), context)

        return run

    def _streaming(self, begin: Callable[[object, Context], Call], behaviour: Any) -> Any:
        async def run(data: bytes, context: Context) -> None:
            call = begin(data, context)
            async with self._inside(call, self._layers):
                await _write_all(context, behaviour(await decode(call), context))

        return run

    def _exempt(
        self, begin: Callable[[object, Context], Call], handler: Any, kind: Any, layers: Sequence[Layer]
    ) -> Any:
        """Inside few layers or none, but: bytes that are no message are refused, and no exception is told."""
        inside = (errors_mapped, *layers)

        async def answer(data: bytes, context: Context) -> Any:
            call = begin(data, context)
            async with self._inside(call, inside):
                return await handler.unary_unary(await decode(call), context)

        async def watch(data: bytes, context: Context) -> None:
            call = begin(data, context)
            async with self._inside(call, inside):
                await self._until_stop(context, handler.unary_stream(await decode(call), context))

        async def converse(requests: AsyncIterator[bytes], context: Context) -> None:
            async with self._inside(begin(requests, context), inside):
                await self._until_stop(context, handler.stream_stream(_all_decoded(requests, kind), context))

        if handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(converse, None, handler.response_serializer)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(watch, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)

    async def _until_stop(self, context: Context, items: Any) -> None:
        try:
            async with self._watching():
                await _write_all(context, items)
        except TimeoutError:
            raise ServerDraining from None

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        async with asyncio.timeout(0 if self._stopping else None) as watch:
            self._watches.add(watch)
            try:
                yield
            finally:
                self._watches.discard(watch)

    def _refuse_unknown(self, metadata: Sequence[tuple[str, str | bytes]]) -> Any:
        async def run(request: bytes, context: Context) -> None:
            await abort(Call("_OTHER", context, request, request_id(metadata)), MethodUnknown())

        return run


async def _all_decoded(requests: AsyncIterator[bytes], kind: Any) -> AsyncIterator[object]:
    async for data in requests:
        yield await Encoded(data, kind).decode()


async def _write_all(context: Context, items: Any) -> None:
    # Writes instead of yielding: grpc never closes the generator of a cancelled stream (grpc/grpc#42295), and its
    # `finally` would run later, in a foreign task.
    if not inspect.isasyncgen(items):
        await items
        return
    async with contextlib.aclosing(items):
        async for item in items:
            await _write(context, item)


async def _write(context: Context, item: object) -> None:
    try:
        await context.write(item)
    except grpc.aio.InternalError:  # the client has gone
        raise asyncio.CancelledError from None


class Health:
    """Whether the process lives (`""`, always) and whether its services are ready to be called."""

    def __init__(self, services: Sequence[str]) -> None:
        self.servicer = health.HealthServicer()
        self._services = services

    async def __aenter__(self) -> Self:
        await self.servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        await self.set_ready(False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.servicer.enter_graceful_shutdown()

    async def set_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self.servicer.set(service, status)


@dataclass(frozen=True, slots=True)
class Service:
    """A gRPC service to serve: its full name, and how its servicer is added to a server."""

    name: str
    add: Callable[[grpc.aio.Server], None]


class Server:
    """Serves from entering to leaving; leaving lets calls under way end, for at most `grace` seconds."""

    def __init__(
        self,
        address: str,
        services: Sequence[Service],
        *,
        health: Health,
        grace: float,
        layers: Sequence[Layer] = (),
        reflection_layers: Sequence[Layer] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """Without `credentials` in plain text."""
        self._address = address
        self._services = services
        self.layers = layers
        self._reflection_layers = reflection_layers
        self._credentials = credentials
        self._health = health
        self._grace = grace
        self.stopping = False
        self.port = 0

    async def __aenter__(self) -> Self:
        self._pipeline = Pipeline(self.layers, self._reflection_layers)
        self._server = grpc.aio.server(interceptors=[self._pipeline], options=list(OPTIONS))
        for service in self._services:
            service.add(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        self._add_reflection([service.name for service in self._services])
        self.port = (
            self._server.add_secure_port(self._address, self._credentials)
            if self._credentials
            else self._server.add_insecure_port(self._address)
        )
        await self._server.start()
        log.info("server.started", port=self.port, tls=self._credentials is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping = True
        self._pipeline.end_watches()
        # Whole answers only: a `stop(0)` as soon as the methods have returned cuts off what is still being sent.
        await self._server.stop(self._grace)

    def _add_reflection(self, services: Sequence[str]) -> None:
        names = [*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        servicer = reflection.aio.ReflectionServicer(service_names=names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, self._server)
        # The package registers v1alpha only (grpc/grpc#38576); v1 has the same messages on the wire. It is served and
        # not listed: clients describe what is listed, and nobody has its descriptor.
        v1 = grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": _reflection_v1(servicer)})
        self._server.add_generic_rpc_handlers((v1,))


def _reflection_v1(servicer: Any) -> Any:
    return grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )


class HealthServer:
    """Health in plain text and nothing else, for a kubelet that sends no certificate and no key."""

    def __init__(self, address: str, health: Health) -> None:
        self._address = address
        self._health = health
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(interceptors=[Pipeline(())], options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        self.port = self._server.add_insecure_port(self._address)
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)
