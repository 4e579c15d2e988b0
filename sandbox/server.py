"""The sandbox's HTTP side: one port, on which each pretended service has its routes.

A new one is a class with a store and a method `routes`, and a line in `__main__.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from json import dumps
from typing import Any, Protocol, Self
from uuid import UUID

from aiohttp import web

from sandbox.scripts import Action, Kind

HOST = "127.0.0.1"
RETRY_AFTER = 1  # seconds, asked for with 429

STOPPING = web.AppKey("stopping", asyncio.Event)


class Service(Protocol):
    """Some of the routes."""

    def routes(self) -> Iterable[web.RouteDef]: ...


class HttpServer:
    """`port` is 0 for any free one, and the real one once entered."""

    def __init__(self, port: int, services: Iterable[Service], host: str = HOST) -> None:
        self.port = port
        self._host = host
        self._app = web.Application()
        self._app[STOPPING] = asyncio.Event()
        self._app.on_shutdown.append(_stop)
        for service in services:
            self._app.add_routes(service.routes())

    async def __aenter__(self) -> Self:
        # Cancelled with its client, a handler that hangs on purpose does not outlive it.
        self._runner = web.AppRunner(self._app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def refuse(action: Action) -> web.Response:
    """As nobody in particular does."""
    headers = {"Retry-After": str(RETRY_AFTER)} if action.code == 429 else None
    return web.json_response({"error": "scripted"}, status=action.code, headers=headers)


async def play(
    request: web.Request,
    action: Action,
    accept: Callable[[], Awaitable[web.StreamResponse]],
    refuse: Callable[[Action], web.Response] = refuse,
) -> web.StreamResponse:
    """Does as the script says; `accept` takes what the request brought, and answers it."""
    if action.kind is Kind.REFUSE:
        return refuse(action)
    if action.accepts:
        response = await accept()
        if action.kind is Kind.ACCEPT:
            return response
    if action.kind in (Kind.CLOSE, Kind.ACCEPT_THEN_CLOSE) and request.transport:
        request.transport.abort()
    # Until the client leaves, which cancels this, or the sandbox stops.
    await request.app[STOPPING].wait()
    raise web.HTTPServiceUnavailable


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(value, status=status, headers=headers, dumps=lambda value: dumps(value, default=_plain))


async def _stop(app: web.Application) -> None:
    app[STOPPING].set()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(type(value).__name__)
