"""Real processes: started as an operator starts them, watched through their logs and their health."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
SECRET = "a secret key for tests, 32 characters"
STOP_TIMEOUT = 60.0
LINES_SHOWN = 100
SERVING = health_pb2.HealthCheckResponse.SERVING

_numbers = itertools.count(1)

# Short enough to wait for, and long enough for a busy machine to renew a lease in.
QUICK = {"LEASE": "3", "EMAIL_PROVIDER_TIMEOUT": "1.9", "POLL_INTERVAL": "1", "RETRY_BASE": "0.2", "RETRY_CAP": "1"}


class Running:
    """A process of ours, and what it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        async with asyncio.timeout(STOP_TIMEOUT):
            return await self._process.wait()

    def output(self) -> str:
        return self._log.read_text()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line of this event, once it is there."""

        async def find() -> dict[str, Any] | None:
            return next((line for line in self.events() if line["event"] == event), None)

        found = await eventually(find, within=STOP_TIMEOUT)
        assert found is not None
        return found

    async def port(self) -> int:
        port: int = (await self.logged("server.started"))["port"]
        return port


@asynccontextmanager
async def running(module: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Running]:
    """`python -m module`, killed at the end if it has not ended by then."""
    log = folder / f"{module}-{next(_numbers)}.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NOTIFYQUEUE_", "OTEL_"))}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, cwd=ROOT, env=inherited | dict(environment), stdout=output, stderr=output
        )
    try:
        yield Running(process, log)
    except BaseException:
        _show(log)
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()


def _show(log: Path) -> None:
    """For the report of a test that failed."""
    print(f"--- the end of {log.name}", *log.read_text(errors="replace").splitlines()[-LINES_SHOWN:], sep="\n")


def environment(url: str, **settings: object) -> dict[str, str]:
    """Settings of a service that listens wherever it can. `settings` are without the prefix."""
    common = {
        "DATABASE_URL": url,
        "SECRET_KEY": SECRET,
        "LISTEN_ADDRESS": "127.0.0.1:0",
        "HEALTH_LISTEN": "127.0.0.1:0",
        "AUTH": "off",
    }
    return {f"NOTIFYQUEUE_{name}": str(value) for name, value in {**common, **settings}.items()}


async def health(address: str, service: str) -> int | None:
    """What a probe is told; None where nobody answers."""
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)  # type: ignore[attr-defined]
        except grpc.aio.AioRpcError:
            return None
        status: int = answer.status
        return status


async def ready(address: str, service: str) -> None:
    async def look() -> bool:
        return await health(address, service) == SERVING

    await eventually(look, within=STOP_TIMEOUT)
