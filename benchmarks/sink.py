"""All that is around a worker: takes what is exported over OTLP, and mails, and drops them; reads its page of metrics.

`python -m benchmarks.sink PORT` prints its ports for OTLP and for mail; PORT is the page's, which need not be there.
"""

import asyncio
import sys
import time
from concurrent import futures
from contextlib import suppress
from threading import Thread
from typing import Any, cast
from urllib.request import urlopen

import grpc

SCRAPED_EVERY = 5.0  # seconds, which is more often than most do


class Anything(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def scrape(port: int) -> None:
    while True:
        with suppress(OSError), urlopen(f"http://localhost:{port}/metrics", timeout=SCRAPED_EVERY) as page:
            page.read()
        time.sleep(SCRAPED_EVERY)


class Mails(asyncio.Protocol):
    """A mail server that says yes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._read = b""
        self._within = False
        self._transport.write(b"220 sink\r\n")

    def data_received(self, data: bytes) -> None:
        self._read += data
        while True:
            said, end, rest = self._read.partition(b"\r\n.\r\n" if self._within else b"\r\n")
            if not end:
                return
            self._read = rest
            command = b"" if self._within else said[:4].upper()
            begins = not self._within and command == b"DATA"
            self._within = begins
            self._transport.write(
                b"354 go on\r\n" if begins else b"221 bye\r\n" if command == b"QUIT" else b"250 yes\r\n"
            )


async def serve(page: int) -> None:
    grpc_server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Anything()])
    traces = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    mails = await asyncio.get_running_loop().create_server(Mails, "127.0.0.1", 0)
    print(traces, mails.sockets[0].getsockname()[1], flush=True)
    Thread(target=scrape, args=[page], daemon=True).start()
    await asyncio.to_thread(sys.stdin.read)  # until whoever started it is gone
    grpc_server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
