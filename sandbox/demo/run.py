"""A run of the demo, from the first process to the verdict."""

import argparse
import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import asyncpg
import grpc.aio
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from notifyqueue import NotifyQueueError, connect
from notifyqueue.v1 import dispatcher_pb2
from notifyqueue.v1.dispatcher_pb2_grpc import WebhookDispatcherStub
from sandbox.demo import small_shop
from sandbox.demo.day import Day
from sandbox.demo.ledgers import Ledgers, Sandbox
from sandbox.demo.story import OUTAGE, REFUSALS
from sandbox.demo.told import Told, told
from sandbox.demo.verdict import Rows, Verdict, judge, not_as_told
from sandbox.plan import TENANT, Plan
from sandbox.postgres import PostgresError, folder_for
from sandbox.up import ROOT, Died, NotUp, alongside, database, prepare, running, write_place
from shared.migrations import MigrationError

PATIENCE = 120.0  # seconds for the day to end, and then for its last webhook
CALL = 10.0  # seconds for an answer of the sandbox, and of the dispatcher

DESCRIPTION = "demo"  # of the webhook endpoint, by which the next run knows what a killed one left

# What takes minutes in production takes seconds here.
HASTE = {
    "worker": {
        "RETRY_BASE": "0.3",
        "RETRY_CAP": "2",
        "PROBE_BASE": "0.5",
        "PROBE_CAP": "2",
        "POLL_INTERVAL": "1",
        # What is silent is waited for; what only is slow, on a machine with much to do, must not be taken for that.
        "PUSH_PROVIDER_TIMEOUT": "5",
    },
    "dispatcher": {"POLL_INTERVAL": "1"},
}

EVENTS = ("sent", "failed", "dead_lettered", "cancelled", "expired", "suppressed")

READ = """
SELECT n.id::text AS id, n.status, n.provider_message_id, n.started_at, count(e.id) AS events
FROM notifyqueue.notifications AS n
LEFT JOIN notifyqueue.webhook_events AS e ON e.notification_id = n.id
WHERE n.tenant_id = ANY ($2) AND n.idempotency_key LIKE $1 || '-%'
GROUP BY n.id
"""

console = Console()


class TooLate(Exception):
    """The day did not end in time. `problems` says what is not as told."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"the day did not end within {PATIENCE:.0f} s")
        self.problems = problems


def main() -> int:
    """Answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description="The day of two shops, and its proof.")
    parser.add_argument("--state", type=Path, help="the folder it keeps (default: .local/demo)")
    chosen: Path | None = parser.parse_args().state
    state = (chosen or ROOT / ".local" / "demo").resolve()
    try:
        state.mkdir(parents=True, exist_ok=True)
        with database(state / "postgres" if chosen else folder_for(ROOT).with_name("postgres-demo")) as url:
            verdict = asyncio.run(_run(state, url))
    except Exception as error:
        for line in _details(error):
            print(line)
        print(f"demo: failed: {_reason(error)}")
        return 1
    for problem in verdict.problems:
        print(f"demo: wrong: {problem}")
    print("demo: failed" if verdict.problems else verdict.line())
    return 1 if verdict.problems else 0


def _details(error: Exception) -> Sequence[str]:
    """What is worth reading before the reason."""
    if isinstance(error, Died):
        return [f"  {line}" for line in error.last_lines]
    if isinstance(error, TooLate):
        return [f"demo: wrong: {problem}" for problem in error.problems]
    return []


def _reason(error: Exception) -> str:
    """One line, whatever it is."""
    if isinstance(error, Died):
        return error.ended
    if isinstance(error, grpc.aio.AioRpcError):
        said = f"a call was not answered: {error.code().name}, {error.details()}"
    elif isinstance(error, (TooLate, NotUp, PostgresError, MigrationError, NotifyQueueError)):
        said = str(error)
    else:
        said = f"{type(error).__name__}: {error}"
    return " ".join(said.split())


async def _run(state: Path, url: str) -> Verdict:
    plan = await prepare(state, url, HASTE)
    console.print("starting the services and the sandbox")
    try:
        async with told() as found, running(plan) as processes:
            write_place(plan, processes)
            verdict, example = await alongside(plan, processes, _prove(plan, url, found))
        for line in found.tree(example):
            print(line)
        return verdict
    finally:
        (state / "up.json").unlink(missing_ok=True)


async def _prove(plan: Plan, url: str, found: Told) -> tuple[Verdict, str]:
    """Also a notification that failed before it was sent."""
    run = f"demo{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(CALL)))
        keys = {TENANT: plan.key, small_shop.TENANT: await small_shop.open_up(url)}
        client, small = [
            await stack.enter_async_context(
                connect(plan.address("scheduler"), api_key=key, interceptors=found.interceptors)
            )
            for key in keys.values()
        ]
        sandbox = Sandbox(session, plan.sandbox_url)
        endpoints = {f"500x1+{run}-{tenant}": key for tenant, key in keys.items()}
        for endpoint, key in endpoints.items():
            await stack.enter_async_context(_endpoint(plan, sandbox, endpoint, key))
        day = Day(client, small, run)
        await _play(day, sandbox)
        console.print("waiting for the last webhooks; the endpoint failed the first time for each")
        ledgers = await _reported(sandbox, endpoints, run, day.accepted)
        failures = {
            played.act.name: {await sandbox.failures(address) for address in played.addresses if played.act.failures}
            for played in day.played
        }
        silent = {address for played in day.played if played.act.silent for address in played.addresses}
        ledgers = replace(ledgers, asked={address: await sandbox.asked(address) for address in silent})
        rows = await _read(url, run, keys)
        example = min(id_ for played in day.played if played.act.failures for id_ in played.ids)
        return judge(day.played, day.refused_as_told, rows, ledgers.named(rows.taken), failures), example


async def _reported(sandbox: Sandbox, endpoints: Collection[str], run: str, accepted: set[str]) -> Ledgers:
    """The other side's ledgers once these were all reported, or as they are when they should have been."""
    deadline = time.monotonic() + PATIENCE
    while accepted - await sandbox.reported(endpoints, run) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.3)
    return await sandbox.read(endpoints, run)


async def _play(day: Day, sandbox: Sandbox) -> None:
    await sandbox.take_push_down(PATIENCE)
    outage_ends: float | None = time.monotonic() + OUTAGE.total_seconds()
    playing = asyncio.create_task(day.play(), name="day")
    try:
        with _shown(day) as show:
            async with asyncio.timeout(PATIENCE):
                while not (playing.done() and day.over):
                    if playing.done():
                        playing.result()  # which raises what broke it off
                    await day.look()
                    show()
                    if outage_ends and day.outage_over and time.monotonic() > outage_ends:
                        await sandbox.take_push_down(0)
                        outage_ends = None
                    await asyncio.sleep(0.2)
    except TimeoutError:
        raise TooLate(not_as_told(day.played)) from None
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


@contextmanager
def _shown(day: Day) -> Iterator[Callable[[], None]]:
    """The table: drawn again and again on a terminal, and elsewhere printed once, when it ends or is broken off."""
    if not console.is_terminal:
        try:
            yield lambda: None
        finally:
            console.print(_table(day))
        return
    with Live(_table(day), console=console, refresh_per_second=8) as live:
        yield lambda: live.update(_table(day))


def _table(day: Day) -> Table:
    table = Table(
        Column("what the shops asked for", no_wrap=True), "ended", "how", "attempts", box=SIMPLE_HEAD, pad_edge=False
    )
    for played in day.played:
        how = [f"{status} {count}" for status, count in sorted(played.statuses.items())]
        if played.replays:
            how.append(f"{played.replays} replayed")
        ended = f"{played.ended}/{len(played.ids)}"
        table.add_row(played.act.title, ended, ", ".join(how), str(played.attempts or ""))
    for refusal in REFUSALS:
        well = day.refused_as_told.get(refusal.title, True)
        table.add_row(refusal.title, "refused" if well else "NOT SO", refusal.reason, "")
    return table


@asynccontextmanager
async def _endpoint(plan: Plan, sandbox: Sandbox, name: str, key: str) -> AsyncIterator[None]:
    """A shop's webhook endpoint that is told of every end, and fails the first time for each."""
    metadata = (("authorization", f"Bearer {key}"),)
    request = dispatcher_pb2.CreateEndpointRequest(
        url=f"{plan.sandbox_url}/webhooks/{name}",
        event_types=[f"notification.{event}" for event in EVENTS],
        description=DESCRIPTION,
    )
    async with grpc.aio.insecure_channel(plan.address("dispatcher")) as channel:
        stub = WebhookDispatcherStub(channel)

        async def forget(id_: str) -> None:
            gone = dispatcher_pb2.DeleteEndpointRequest(endpoint_id=id_)
            await stub.DeleteEndpoint(gone, metadata=metadata, timeout=CALL)

        asked = dispatcher_pb2.ListEndpointsRequest(page_size=1_000)
        left = await stub.ListEndpoints(asked, metadata=metadata, timeout=CALL)
        for endpoint in left.endpoints:
            if endpoint.description == DESCRIPTION:
                await forget(endpoint.endpoint_id)
        made = await stub.CreateEndpoint(request, metadata=metadata, timeout=CALL)
        try:
            await sandbox.register(name, made.secret)
            yield
        finally:
            with suppress(grpc.aio.AioRpcError):  # what broke the day off is to be told, and the next run does this too
                await forget(made.endpoint.endpoint_id)


async def _read(url: str, run: str, tenants: Collection[str]) -> Rows:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(READ, run, list(tenants))
    finally:
        await connection.close()
    return Rows(
        {row["id"]: row["status"] for row in rows},
        Counter({row["id"]: row["events"] for row in rows}),
        {row["provider_message_id"]: row["id"] for row in rows if row["provider_message_id"]},
        {row["id"]: row["started_at"] for row in rows if row["started_at"]},
    )
