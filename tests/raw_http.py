"""An HTTP server that answers with the bytes that a test wants, or not at all, and counts whole requests."""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum

TLS_RECORD = b"\x16"
LENGTH = re.compile(rb"^content-length: *([0-9]+)", re.IGNORECASE | re.MULTILINE)


class Do(Enum):
    HANG = "hang"
    CLOSE = "close"
    RESET = "reset"


Step = bytes | Do


def answer(status: int, body: bytes = b"{}", **headers: str) -> bytes:
    """A whole answer; an underscore in a header's name is a hyphen."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


TOKEN = answer(200, json.dumps({"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}).encode())


class RawServer:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.requests: list[bytes] = []
        """Those that arrived whole, but for the ones that ask for a token."""
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another request may follow."""
        first = await reader.readexactly(1)
        if first == TLS_RECORD:
            return False
        head = first + await reader.readuntil(b"\r\n\r\n")
        found = LENGTH.search(head)
        body = await reader.readexactly(int(found[1]) if found else 0)
        if b"/token " in head:
            writer.write(TOKEN)
            return True
        self.requests.append(head + body)
        for step in self.steps:
            if step is Do.HANG:
                await reader.read()  # until the client leaves
            if step is Do.RESET:
                reset = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            if step is Do.CLOSE:
                writer.close()
            if isinstance(step, Do):
                return False
            writer.write(step)
            await writer.drain()
        return True


@asynccontextmanager
async def raw_server(*steps: Step, context: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    raw = RawServer(steps)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=context)
    scheme = "https" if context else "http"
    raw.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        for writer in raw.writers:
            writer.transport.abort()
        await server.wait_closed()
