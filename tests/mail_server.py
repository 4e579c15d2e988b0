"""A mail server of a few lines, which does between the final dot and its answer whatever a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes


class MailServer:
    """Takes every mail, and remembers its Message-ID."""

    def __init__(self, before_answer: Callable[[], Awaitable[None]], after_answer: Callable[[], None]) -> None:
        self.port = 0
        self.message_ids: list[str] = []
        self._before_answer = before_answer
        self._after_answer = after_answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test ESMTP\r\n")
        while line := await reader.readline():
            match line[:4].upper():
                case b"DATA":
                    await self._take(reader, writer)
                case b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                case _:
                    writer.write(b"250 ok\r\n")
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go on\r\n")
        data = await reader.readuntil(b"\r\n.\r\n")
        self.message_ids.append(str(message_from_bytes(data)["Message-ID"]))
        await self._before_answer()
        writer.write(b"250 taken\r\n")
        await writer.drain()
        self._after_answer()


async def at_once() -> None:
    """Nothing happens before the answer."""


@asynccontextmanager
async def mail_server(
    before_answer: Callable[[], Awaitable[None]] = at_once, after_answer: Callable[[], None] = lambda: None
) -> AsyncIterator[MailServer]:
    served = MailServer(before_answer, after_answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
