"""What a container's health check says to its engine."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shared import healthcheck

STATUS = health_pb2.HealthCheckResponse


@pytest.fixture
def address() -> Iterator[str]:
    """A process that is alive and not ready."""
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("", STATUS.SERVING)
    servicer.set("starting", STATUS.NOT_SERVING)
    servicer.set("ready", STATUS.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("service", "code"),
    [("", 0), ("ready", 0), ("starting", 1), ("unknown", 1)],
)
def test_only_what_serves_is_healthy(address: str, service: str, code: int) -> None:
    assert healthcheck.main(address, service) == code


def test_nobody_there_is_not_healthy(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main(f"127.0.0.1:{unused_tcp_port}") == 1
    assert capsys.readouterr().err == "process: UNAVAILABLE\n"
