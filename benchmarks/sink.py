"""Takes whatever is exported over OTLP and drops it: `python -m benchmarks.sink` prints its port."""

import sys
from concurrent import futures
from typing import Any

import grpc


class Anything(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def main() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Anything()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()  # until whoever started it is gone
    server.stop(0)


if __name__ == "__main__":
    main()
