"""The three services in this process with authentication on, and keys to call them with."""

import importlib
import pkgutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import grpc.aio
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pydantic import SecretStr

import notifyqueue.v1
from services.dispatcher import __main__ as dispatcher
from services.dispatcher.settings import Settings as DispatcherSettings
from services.scheduler import __main__ as scheduler
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker import __main__ as worker
from services.worker.settings import Settings as WorkerSettings
from shared.access import Role
from shared.api_keys import ApiKey
from shared.owner.keys import create_key
from shared.process import Process
from tests.conftest import login

SECRET = "a secret key for tests, 32 characters"
KEYED: dict[str, Any] = {
    "listen_address": "127.0.0.1:0",
    "health_listen": "127.0.0.1:0",
    "secret_key": SecretStr(SECRET),
    "auth": "keys",
}
PROCESSES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "notifyqueue.v1.Scheduler": (SchedulerSettings, scheduler, {}),
    "notifyqueue.v1.Worker": (WorkerSettings, worker, {"email_provider": "mock"}),
    "notifyqueue.v1.WebhookDispatcher": (DispatcherSettings, dispatcher, {"webhook_allow_addresses": "127.0.0.1/32"}),
}
# What a process serves besides.
BESIDE = {"notifyqueue.v1.Scheduler": ("notifyqueue.v1.Templates", "notifyqueue.v1.Recipients")}

Metadata = tuple[tuple[str, str], ...]


def methods() -> dict[str, MethodDescriptor]:
    """The RPCs of our processes, named as the access table names them."""
    found: dict[str, MethodDescriptor] = {}
    for module in pkgutil.iter_modules(notifyqueue.v1.__path__, "notifyqueue.v1."):
        if module.name.endswith("_pb2"):
            descriptor: Any = importlib.import_module(module.name).DESCRIPTOR
            for service in descriptor.services_by_name.values():
                if service.full_name != "notifyqueue.v1.Provider":  # served by others
                    found |= {f"{service.full_name}/{method.name}": method for method in service.methods}
    return found


METHODS = methods()


def bearer(key: ApiKey | None) -> Metadata:
    return (("authorization", f"Bearer {key.reveal()}"),) if key else ()


def with_other_secret(key: ApiKey) -> ApiKey:
    return replace(key, secret=ApiKey.new().secret)


class Keyed:
    """All RPCs, by name. An answer is a message, or the reason of a refusal."""

    def __init__(self, channels: Mapping[str, grpc.aio.Channel]) -> None:
        self.channels = channels

    async def call(self, method: str, metadata: Metadata, request: Mapping[str, Any] | None = None) -> Message | str:
        descriptor = METHODS[method]
        asked = json_format.ParseDict(dict(request or {}), GetMessageClass(descriptor.input_type)())
        multi: Any = self.channels[descriptor.containing_service.full_name].unary_unary(
            f"/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(descriptor.output_type).FromString,
        )
        try:
            answer: Message = await multi(asked, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return str(dict(error.trailing_metadata() or ()).get("error-reason", error.code().name))
        return answer

    async def told(self, method: str, metadata: Metadata, request: Mapping[str, Any] | None = None) -> str:
        """The reason of a refusal; empty where it was answered."""
        answer = await self.call(method, metadata, request)
        return answer if isinstance(answer, str) else ""


async def start_keyed(stack: AsyncExitStack, url: str, *services: str, **settings: Any) -> Keyed:
    """Starts these on a database, or all three."""
    channels: dict[str, grpc.aio.Channel] = {}
    for service in services or PROCESSES:
        kind, module, own = PROCESSES[service]
        name = module.__name__.split(".")[1]
        chosen = kind(database_url=SecretStr(login(url, name)), **KEYED | own | settings)
        process = Process(name, chosen, stack)
        await module.start(process, chosen)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
        channels |= dict.fromkeys((service, *BESIDE.get(service, ())), channel)
    return Keyed(channels)


class Owner:
    """Makes tenants and keys, and looks at everything."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.connection = connection

    async def tenant(self, name: str) -> str:
        await self.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ($1)", name)
        return name

    async def key(self, role: Role, tenant: str = "default", **options: Any) -> ApiKey:
        return await create_key(self.connection, role, None if role is Role.PLATFORM else tenant, **options)

    async def expired(self, role: Role) -> ApiKey:
        return await self.key(role, expires_in=timedelta())

    async def revoked(self, role: Role) -> ApiKey:
        key = await self.key(role)
        await self.revoke(key)
        return key

    async def revoke(self, key: ApiKey) -> None:
        await self.connection.execute("UPDATE notifyqueue.api_keys SET revoked_at = now() WHERE id = $1", key.id)

    async def everything(self) -> dict[str, Any]:
        """Every row of every table, but for what workers write unasked: signs of life, and totals that they merge."""
        tables = await self.connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'notifyqueue'::regnamespace AND relkind = 'r'"
        )
        names = sorted({row["relname"] for row in tables} - {"workers", "status_deltas", "status_totals"})
        return {
            name: await self.connection.fetchval(
                f'SELECT array_agg(t::text ORDER BY t::text COLLATE "C") FROM notifyqueue.{name} AS t'
            )
            for name in names
        }
