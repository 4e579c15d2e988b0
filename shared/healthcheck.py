"""What a container's health check runs: `python -m shared.healthcheck HOST:PORT [SERVICE]`. Exits with 0 or 1.

Without a service it asks whether the process is alive, with one whether that is ready.
"""

import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT = 3.0  # seconds; below what engines give a check


def main(address: str, service: str = "") -> int:
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT)
        except grpc.RpcError as error:
            print(f"{service or 'process'}: {error.code().name}", file=sys.stderr)
            return 1
    status: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(f"{service or 'process'}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m shared.healthcheck HOST:PORT [SERVICE]")
    sys.exit(main(*sys.argv[1:]))
