"""`make up`: everything on this machine, for people without accounts: a database, the services, the other side.

Development only: providers are the sandbox, and every port is on loopback.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

if __name__ == "__main__":
    from shared import starting

    starting.begin()

import asyncpg
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandbox.page import page
from sandbox.plan import NO_SETTINGS, Plan, Settings, make_plan, write_secret
from sandbox.postgres import HOST, Postgres, PostgresError, folder_for
from shared.migrations import MigrationError
from shared.starting import settle

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 60.0
STOP_TIMEOUT = 45.0  # above the services' own shutdown timeout
NOTICE = 1.0  # until a process is known to have ended, after a call to it failed

Found = TypeVar("Found")

SERVICES = {
    "scheduler": "notifyqueue.v1.Scheduler",
    "worker": "notifyqueue.v1.Worker",
    "dispatcher": "notifyqueue.v1.WebhookDispatcher",
}


class NotUp(Exception):
    """It cannot run here, and why."""


class Died(NotUp):
    """One of the processes ended by itself."""

    def __init__(self, name: str, code: int, last_lines: Sequence[str]) -> None:
        self.ended = f"the {name} ended with {code}"
        self.last_lines = tuple(last_lines)
        super().__init__("\n".join([f"{self.ended}; its last lines:", *last_lines]))


def main() -> int:
    """Exits with 0 after Ctrl-C, and with 1 and the reason when something would not run."""
    settle()
    parser = argparse.ArgumentParser(prog="python -m sandbox.up", description="Everything on this machine.")
    parser.add_argument("--state", type=Path, help="the folder it keeps (default: .local)")
    chosen: Path | None = parser.parse_args().state
    state = (chosen or ROOT / ".local").resolve()
    state.mkdir(parents=True, exist_ok=True)
    try:
        with database(state / "postgres" if chosen else folder_for(ROOT)) as url:
            asyncio.run(_run(state, url))
    except (NotUp, PostgresError, MigrationError) as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def database(data: Path) -> Iterator[str]:
    """The owner's URL: DATABASE_URL, whose login may create roles, or that of a server of our own."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    print("starting PostgreSQL", flush=True)
    with Postgres(data) as server:
        yield server.url


async def _run(state: Path, url: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    plan = await prepare(state, url)
    stopping = asyncio.create_task(stop.wait(), name="stop")
    async with running(plan, stopping) as processes:
        if processes:
            write_place(plan, processes)
            print(page(plan), flush=True)
            await _first(stopping, *_watched(processes))
            _raise_for_dead(plan, processes)
        print("stopping", flush=True)
    (state / "up.json").unlink(missing_ok=True)


async def alongside(
    plan: Plan, processes: Mapping[str, asyncio.subprocess.Process], work: Coroutine[Any, Any, Found]
) -> Found:
    """What `work` answers. Once a process ends before it, `work` is cancelled. Raises Died."""
    working, watched = asyncio.create_task(work, name="work"), _watched(processes)
    try:
        await _first(working, *watched)
        if working.done() and working.exception():  # which may be the first that is seen of an end
            await asyncio.wait(watched, timeout=NOTICE, return_when=asyncio.FIRST_COMPLETED)
        _raise_for_dead(plan, processes)
        return working.result()
    finally:
        for task in (working, *watched):
            task.cancel()
        await asyncio.gather(working, *watched, return_exceptions=True)


@asynccontextmanager
async def running(
    plan: Plan, stopping: "asyncio.Task[object] | None" = None
) -> "AsyncIterator[dict[str, asyncio.subprocess.Process]]":
    """The sandbox and the services, once they are ready; none of them where `stopping` ended first. Raises NotUp."""
    async with AsyncExitStack() as stack:
        # Left in the other order: the services drain while the sandbox still answers them.
        processes = {name: await stack.enter_async_context(_process(plan, name)) for name in ("sandbox", *SERVICES)}
        ready = asyncio.create_task(_become_ready(plan), name="ready")
        await _first(ready, *([stopping] if stopping else []), *_watched(processes))
        _raise_for_dead(plan, processes)
        if ready.done():
            await ready
        elif ready.cancel():
            processes = {}
        yield processes


async def prepare(state: Path, url: str, settings: Settings = NO_SETTINGS) -> Plan:
    """Raises NotUp where the database will not have us. It never tells the URL, which holds a password."""
    try:
        if not urlsplit(url).path.strip("/"):
            raise NotUp("DATABASE_URL names no database")
        return await make_plan(state, url, settings)
    except (asyncpg.InterfaceError, ValueError):
        raise NotUp("DATABASE_URL is malformed: postgresql://user:password@host:port/database") from None
    except (asyncpg.PostgresError, OSError) as error:
        reason, _, _ = str(error).partition("\n")
        raise NotUp(f"the database cannot be prepared: {reason or type(error).__name__}") from error


async def _first(*tasks: "asyncio.Task[object]") -> "asyncio.Task[object]":
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return next(task for task in tasks if task in done)


@asynccontextmanager
async def _process(plan: Plan, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    module = name if name == "sandbox" else f"services.{name}"
    inherited = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    with (plan.state / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sandbox.tether", module),
            stdin=asyncio.subprocess.PIPE,  # ends with us, however we end
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=inherited | plan.environment(name),
            start_new_session=True,  # Ctrl-C is ours to hand on, in order
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            print(f"{name} does not stop; killing it", file=sys.stderr)
            process.kill()
            await process.wait()


async def _become_ready(plan: Plan) -> None:
    """Until every service says that it is. Raises NotUp."""
    try:
        async with asyncio.timeout(START_TIMEOUT):
            serving = (_serving(plan.address(name), service) for name, service in SERVICES.items())
            await asyncio.gather(_listening(plan.ports["sandbox"]), *serving)
    except TimeoutError:
        raise NotUp(f"not ready within {START_TIMEOUT:.0f} s; see {plan.state}/*.log") from None


async def _serving(address: str, service: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        async for answer in stub.Watch(request, wait_for_ready=True):  # type: ignore[attr-defined]
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


async def _listening(port: int) -> None:
    """It is the last that the sandbox does of its start."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return
        await asyncio.sleep(0.1)


def write_place(plan: Plan, processes: dict[str, asyncio.subprocess.Process]) -> None:
    """For programs: what the page says to people, and which processes these are."""
    place = {
        "addresses": {name: plan.address(name) for name in plan.ports},
        "pids": {name: process.pid for name, process in processes.items()},
        "receiver": plan.receiver_url,
        "webhook_secret": plan.webhook_secret,
        "key": plan.key,
        "platform_key": plan.platform_key,
        "urls": dict(plan.urls),
    }
    write_secret(plan.state / "up.json", json.dumps(place))


def _watched(processes: Mapping[str, asyncio.subprocess.Process]) -> "list[asyncio.Task[int]]":
    return [asyncio.create_task(process.wait()) for process in processes.values()]


def _raise_for_dead(plan: Plan, processes: Mapping[str, asyncio.subprocess.Process]) -> None:
    for name, process in processes.items():
        if process.returncode is not None:
            lines = (plan.state / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
            raise Died(name, process.returncode, lines)


if __name__ == "__main__":
    sys.exit(main())
