"""Steering one worker or dispatcher process: what it does, and to stop taking work."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import grpc.aio

from notifyqueue.channel import TIMEOUT, Connection, Tls
from notifyqueue.times import to_duration
from notifyqueue.v1.dispatcher_pb2 import (
    DispatcherStatus,
    DrainDispatcherRequest,
    GetDispatcherStatusRequest,
    ResumeDispatcherRequest,
)
from notifyqueue.v1.dispatcher_pb2_grpc import WebhookDispatcherStub
from notifyqueue.v1.worker_pb2 import DrainWorkerRequest, GetWorkerStatusRequest, ResumeWorkerRequest, WorkerStatus
from notifyqueue.v1.worker_pb2_grpc import WorkerStub

LONGEST_DRAIN = timedelta(hours=1)
MARGIN = timedelta(seconds=10)  # for the answer, after the drain's own timeout


def connect_worker(
    address: str,
    *,
    api_key: str | None = None,
    tls: Tls = None,
    timeout: timedelta = TIMEOUT,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> AbstractAsyncContextManager["Worker"]:
    """The worker process at an address; the rest as for `connect`."""
    return _worker(Connection(address, api_key=api_key, tls=tls, timeout=timeout, interceptors=interceptors))


def connect_dispatcher(
    address: str,
    *,
    api_key: str | None = None,
    tls: Tls = None,
    timeout: timedelta = TIMEOUT,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> AbstractAsyncContextManager["Dispatcher"]:
    """The dispatcher process at an address; the rest as for `connect`."""
    return _dispatcher(Connection(address, api_key=api_key, tls=tls, timeout=timeout, interceptors=interceptors))


@asynccontextmanager
async def _worker(connection: Connection) -> AsyncIterator["Worker"]:
    async with connection:
        yield Worker(connection)


@asynccontextmanager
async def _dispatcher(connection: Connection) -> AsyncIterator["Dispatcher"]:
    async with connection:
        yield Dispatcher(connection)


def _longest(wait: timedelta | None) -> timedelta:
    return (LONGEST_DRAIN if wait is None else wait) + MARGIN


class Worker:
    """One worker process. Every call raises NotifyQueueError when it fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = WorkerStub(connection.channel)

    async def status(self) -> WorkerStatus:
        answer = await self._connection.call(self._stub.GetWorkerStatus, GetWorkerStatusRequest())
        return answer.worker

    async def drain(self, wait: timedelta | None = None) -> WorkerStatus:
        """Claims nothing more and waits for what runs, by default as long as the process takes to stop."""
        request = DrainWorkerRequest(timeout=None if wait is None else to_duration(wait))
        answer = await self._connection.call(self._stub.DrainWorker, request, within=_longest(wait))
        return answer.worker

    async def resume(self) -> WorkerStatus:
        answer = await self._connection.call(self._stub.ResumeWorker, ResumeWorkerRequest())
        return answer.worker


class Dispatcher:
    """One dispatcher process. Every call raises NotifyQueueError when it fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = WebhookDispatcherStub(connection.channel)

    async def status(self) -> DispatcherStatus:
        answer = await self._connection.call(self._stub.GetDispatcherStatus, GetDispatcherStatusRequest())
        return answer.dispatcher

    async def drain(self, wait: timedelta | None = None) -> DispatcherStatus:
        """Claims nothing more and waits for what runs, by default as long as the process takes to stop."""
        request = DrainDispatcherRequest(timeout=None if wait is None else to_duration(wait))
        answer = await self._connection.call(self._stub.DrainDispatcher, request, within=_longest(wait))
        return answer.dispatcher

    async def resume(self) -> DispatcherStatus:
        answer = await self._connection.call(self._stub.ResumeDispatcher, ResumeDispatcherRequest())
        return answer.dispatcher
