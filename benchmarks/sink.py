"""What listens to a service: takes whatever is exported over OTLP and drops it, and reads its page of metrics.

`python -m benchmarks.sink PORT` prints its own port; PORT is the page's, which need not be there.
"""

import sys
import time
from concurrent import futures
from contextlib import suppress
from threading import Thread
from typing import Any
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


def main() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Anything()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    Thread(target=scrape, args=[int(sys.argv[1])], daemon=True).start()
    sys.stdin.read()  # until whoever started it is gone
    server.stop(0)


if __name__ == "__main__":
    main()
