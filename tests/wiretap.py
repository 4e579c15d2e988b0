"""A proxy that knows what passes by: it stops, or cuts, whatever carries a mark."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from tests.integration.tcp_proxy import TcpProxy

Action = Callable[[], Awaitable[None]]


class Hold:
    """What carried the mark goes no further until it is let go."""

    def __init__(self) -> None:
        self.caught = asyncio.Event()
        self._go = asyncio.Event()

    def let_go(self) -> None:
        self._go.set()

    async def __call__(self) -> None:
        self.caught.set()
        await self._go.wait()


async def cut() -> None:
    """Ends the connection instead of carrying it on."""
    raise ConnectionAbortedError


class Way:
    """One direction. What is done about a mark is done once, to the first that carries it."""

    def __init__(self) -> None:
        self._marks: dict[bytes, Action] = {}

    def watch(self, mark: bytes, action: Action) -> None:
        self._marks[mark] = action

    def hold(self, mark: bytes) -> Hold:
        hold = Hold()
        self.watch(mark, hold)
        return hold

    async def look(self, data: bytes) -> None:
        for mark in [mark for mark in self._marks if mark in data]:
            if action := self._marks.pop(mark, None):
                await action()


class Wiretap:
    """Between a process and its database. An id passes as the 16 bytes that it is, a text as it stands."""

    def __init__(self, proxy: TcpProxy) -> None:
        self._proxy = proxy
        self.questions, self.answers = Way(), Way()
        proxy.on_question, proxy.on_answer = self.questions.look, self.answers.look

    def url(self, url: str) -> str:
        """The same database, by this way."""
        parts = urlsplit(url)
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._proxy.port}"
        return urlunsplit(parts._replace(netloc=host))

    def settings(self, login: str) -> dict[str, str]:
        """For a process of ours that logs in with this URL. What it hears does not come this way."""
        return {"DATABASE_URL": self.url(login), "LISTEN_DATABASE_URL": login}


@asynccontextmanager
async def wiretap(url: str) -> AsyncIterator[Wiretap]:
    parts = urlsplit(url)
    async with TcpProxy(parts.hostname or "", parts.port or 5432) as proxy:
        yield Wiretap(proxy)
