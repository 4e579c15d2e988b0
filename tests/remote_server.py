"""A Provider service that answers as a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from notifyqueue.v1 import provider_pb2, provider_pb2_grpc
from services.worker.providers.remote import Remote
from services.worker.providers.remote_settings import RemoteSettings

Context = grpc.aio.ServicerContext[provider_pb2.DeliverRequest, Awaitable[provider_pb2.DeliverResponse]]


class RemoteServer(provider_pb2_grpc.ProviderServicer):
    """`says` is an answer, a status, or None: no answer at all."""

    def __init__(self, says: provider_pb2.DeliverResponse | grpc.StatusCode | None) -> None:
        self.says = says
        self.asked: list[provider_pb2.DeliverRequest] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.address = ""
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])

    async def leave(self) -> None:
        await self.server.stop(0)

    async def Deliver(self, request: provider_pb2.DeliverRequest, context: Context) -> provider_pb2.DeliverResponse:
        self.asked.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        if self.says is None:
            await asyncio.Event().wait()
        if isinstance(self.says, grpc.StatusCode):
            await context.abort(self.says, "mk-words of its own")
        assert isinstance(self.says, provider_pb2.DeliverResponse)
        return self.says


@asynccontextmanager
async def remote_server(
    says: provider_pb2.DeliverResponse | grpc.StatusCode | None, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[RemoteServer]:
    served = RemoteServer(says)
    server = served.server
    provider_pb2_grpc.add_ProviderServicer_to_server(served, server)
    where = "127.0.0.1:0"
    port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    served.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield served
    finally:
        await served.leave()


def remote(address: str, channel: str = "SMS", *, tls: bool = False, timeout: float = 30.0, token: str = "") -> Remote:
    return Remote(RemoteSettings(address=address, tls=tls, timeout=timeout, token=token), channel)
