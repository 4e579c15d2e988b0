"""A network between a client and a server that can stop carrying anything, as a pulled cable does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self, TypeAlias

Look: TypeAlias = Callable[[bytes], Awaitable[None]]


async def pass_by(_: bytes) -> None:
    """Lets everything through."""


class TcpProxy:
    """Carries bytes to `host`:`port` and back. In a black hole nothing moves, and nobody is told."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.on_question: Look = pass_by
        """Sees what goes to the server, and awaits as long as it is to be held; ConnectionError cuts the connection."""
        self.on_answer: Look = pass_by
        """Likewise, what comes back."""
        self._carries = asyncio.Event()
        self._carries.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def become_black_hole(self) -> None:
        self._carries.clear()

    def heal(self) -> None:
        self._carries.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):  # either side has gone, or the test has ended
            try:
                await self._join(reader, writer)
            finally:
                writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._carries.wait()
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(self._carry(reader, far_writer, lambda data: self.on_question(data))),
            asyncio.create_task(self._carry(far_reader, writer, lambda data: self.on_answer(data))),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.close()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Look) -> None:
        while data := await reader.read(65_536):
            await look(data)
            await self._carries.wait()
            writer.write(data)
            await writer.drain()
