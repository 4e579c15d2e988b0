"""What surrounds every RPC: a request id, a log line, errors turned into statuses, a bound, a deadline, a shape.

A layer is an async context manager around one call. They are entered in the order of the list that the server holds,
so the first sees everything, and the last only what is about to run.
"""

import asyncio
import contextlib
import math
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import grpc
import grpc.aio
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from shared import shape
from shared.access import NOBODY, Caller
from shared.batching import Contention
from shared.errors import (
    ApiError,
    DatabaseUnavailable,
    DeadlineExceeded,
    Internal,
    RoleMissing,
    ServerDraining,
    ServerOverloaded,
    TenantLimitExceeded,
)
from shared.logs import describe
from shared.telemetry import metrics
from shared.wire import MAX_LARGE, MAX_REQUEST, Encoded

log = structlog.get_logger()

DOMAIN = "notifyqueue"
SAFE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")

# As OpenTelemetry's RPC conventions divide them: these are the server's fault, the others the caller's.
FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(slots=True)
class Call:
    """One RPC under way."""

    method: str  # notifyqueue.v1.Scheduler/GetNotification
    context: Context
    request: object  # Encoded until a layer has let the caller in
    request_id: str
    caller: Caller = NOBODY  # until a layer of shared/auth.py has said who it is
    code: grpc.StatusCode = grpc.StatusCode.OK
    patient: bool = False  # until a layer has said that it may stay open for longer than others
    began: float = field(default_factory=time.monotonic)

    @property
    def tenant(self) -> str:
        """Whose notifications this call is about. Raises RoleMissing where the caller has no tenant."""
        if self.caller.tenant is None:
            raise RoleMissing
        return self.caller.tenant

    @property
    def actor(self) -> str:
        """Who does this, as histories record it."""
        return self.caller.actor

    @property
    def fault(self) -> bool:
        """Whether it ended as it did by the server's fault. One that may stay open ends at a deadline by right."""
        over = self.patient and self.code is grpc.StatusCode.DEADLINE_EXCEEDED
        return self.code in FAULTS and not over

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline; infinite where it names none."""
        remaining: float | None = self.context.time_remaining()
        return math.inf if remaining is None else remaining


current_call: ContextVar[Call] = ContextVar("current_call")

Layer: TypeAlias = Callable[[Call], AbstractAsyncContextManager[None]]


def request_id(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """The caller's `x-request-id` where it is short and safe to log, else a new one."""
    asked = str(dict(metadata).get("x-request-id", ""))
    return asked if SAFE_REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex


@contextlib.asynccontextmanager
async def logged(call: Call) -> AsyncIterator[None]:
    """The request id in every log line of the call and in its trailers, and one line at its end."""
    call.context.set_trailing_metadata((("request-id", call.request_id),))
    with structlog.contextvars.bound_contextvars(request_id=call.request_id):
        try:
            yield
        except asyncio.CancelledError:
            late = call.time_remaining() <= 0
            call.code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
            raise
        finally:
            elapsed = round((time.monotonic() - call.began) * 1e3, 1)
            write = log.debug if call.code is grpc.StatusCode.OK else log.warning
            if call.fault:
                write = log.error
            write("rpc.done", method=call.method, code=call.code.name, duration_ms=elapsed, actor=call.actor)


@contextlib.asynccontextmanager
async def measured(call: Call) -> AsyncIterator[None]:
    """Counts the call, by its method and how it ended, and how long it took."""
    try:
        yield
    finally:
        code = call.code.name
        error = code if call.fault else ""
        metrics.RPC_TIME.record(time.monotonic() - call.began, call.method, code, error)


@contextlib.asynccontextmanager
async def errors_mapped(call: Call) -> AsyncIterator[None]:
    """Turns exceptions into statuses with details; what is not an ApiError is logged, and hidden from the caller."""
    try:
        yield
    except grpc.aio.AbortError:
        raise  # grpc's own: replacing it is an error
    except Exception as error:
        await abort(call, told(call, error))


def told(call: Call, error: Exception) -> ApiError:
    """What a caller is told of an exception; what it is not told is logged."""
    if isinstance(error, ApiError):
        if cause := error.__cause__:
            log.warning("rpc.cause", method=call.method, **describe(cause))
        return error
    if isinstance(error, Contention):  # it was rolled back each time: nothing was written, and the same may succeed
        log.warning("rpc.cause", method=call.method, **describe(error))
        return DatabaseUnavailable()
    log.error("rpc.failed", method=call.method, exc_info=error)
    return Internal()


async def abort(call: Call, error: ApiError) -> None:
    """Ends the call with this error. Raises, always."""
    call.code = error.code
    try:
        await call.context.abort_with_status(_to_status(error, call.request_id))
    except grpc.aio.InternalError:  # the client has gone
        raise asyncio.CancelledError from None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for one method instead of what holds for all others together: as for streams that stay open."""

    calls: int
    seconds: float
    calls_of_a_tenant: int | None = None
    """So that no tenant has them all. It is none where nobody has a key, and nobody has a tenant of his own."""


NONE_OF_ITS_OWN: Mapping[str, Bounds] = MappingProxyType({})


def bounded(
    limit: int, is_draining: Callable[[], bool] = lambda: False, *, own: Mapping[str, Bounds] = NONE_OF_ITS_OWN
) -> Layer:
    """At most `limit` calls at once, and of a method with its `own` bound as many more; none while it is draining."""
    busy: Counter[str] = Counter()
    shares: Counter[tuple[str, str | None]] = Counter()

    @contextlib.asynccontextmanager
    async def layer(call: Call) -> AsyncIterator[None]:
        if is_draining():
            raise ServerDraining
        bounds = own.get(call.method)
        counted = call.method if bounds else ""
        if busy[counted] >= (bounds.calls if bounds else limit):
            raise ServerOverloaded
        share = (counted, call.caller.tenant)
        if bounds and bounds.calls_of_a_tenant and call.caller.role and shares[share] >= bounds.calls_of_a_tenant:
            raise TenantLimitExceeded(ServerOverloaded.retry_after)
        busy[counted] += 1
        shares[share] += 1
        try:
            yield
        finally:
            busy[counted] -= 1
            shares[share] -= 1
            if not shares[share]:
                del shares[share]

    return layer


def timed(
    seconds: float, *, unbounded: frozenset[str] = frozenset(), own: Mapping[str, Bounds] = NONE_OF_ITS_OWN
) -> Layer:
    """No call takes longer than its own deadline, nor than `seconds` where it names none or a later one."""

    @contextlib.asynccontextmanager
    async def layer(call: Call) -> AsyncIterator[None]:
        bounds = own.get(call.method)
        usual = bounds.seconds if bounds else seconds
        call.patient = bounds is not None or call.method in unbounded
        allowed = min(call.time_remaining(), math.inf if call.method in unbounded else usual)
        try:
            async with asyncio.timeout(None if math.isinf(allowed) else max(0.0, allowed)) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise DeadlineExceeded from None

    return layer


def shaped(*, large: frozenset[str] = frozenset()) -> Layer:
    """Decodes the request, and refuses what is not a well-formed one of this version. `large` are methods."""

    @contextlib.asynccontextmanager
    async def layer(call: Call) -> AsyncIterator[None]:
        request = await decode(call, most=MAX_LARGE if call.method in large else MAX_REQUEST)
        if isinstance(request, Message):
            shape.check(request)
        yield

    return layer


async def decode(call: Call, *, most: int = MAX_REQUEST) -> object:
    """The request, decoded once; of at most so many bytes. Raises RequestInvalid."""
    if isinstance(call.request, Encoded):
        call.request = await call.request.decode(most=most)
    return call.request


class _Status(NamedTuple):
    """What `abort_with_status` reads (grpc.Status is an interface without a constructor)."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


def _to_status(error: ApiError, request_id: str) -> Any:
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    request = error_details_pb2.RequestInfo(request_id=request_id)
    number, _ = error.code.value
    status = status_pb2.Status(code=number, message=error.message)
    for detail in (info, request, *error.details()):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    trailers = (
        ("grpc-status-details-bin", status.SerializeToString()),
        ("error-reason", error.reason),
        ("request-id", request_id),
    )
    return _Status(error.code, error.message, trailers)
