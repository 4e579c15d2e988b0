"""`make demo`: everything is started on this machine, a shop's day is played, and what became of it is counted.

The last line is `demo: ok …` and the exit code 0, or what is wrong is named, and it is 1.
"""

import argparse
import asyncio
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
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
from sandbox.demo.day import Day
from sandbox.demo.ledgers import Ledgers, Sandbox
from sandbox.demo.story import OUTAGE
from sandbox.demo.verdict import Rows, Verdict, judge
from sandbox.plan import Plan
from sandbox.postgres import PostgresError, folder_for
from sandbox.up import ROOT, NotUp, database, prepare, running
from shared.migrations import MigrationError

PATIENCE = 60.0  # seconds for the day to end, and for its last webhook

# What takes minutes in production takes seconds here.
HASTE = {
    "worker": {
        "RETRY_BASE": "0.3",
        "RETRY_CAP": "2",
        "PROBE_BASE": "0.5",
        "PROBE_CAP": "2",
        "POLL_INTERVAL": "1",
        "PUSH_PROVIDER_TIMEOUT": "2",
    },
    "dispatcher": {"POLL_INTERVAL": "1"},
}

EVENTS = ("sent", "failed", "dead_lettered", "cancelled", "expired", "suppressed")

READ = """
SELECT n.id::text AS id, n.status, count(e.id) AS events
FROM notifyqueue.notifications AS n
LEFT JOIN notifyqueue.webhook_events AS e ON e.notification_id = n.id
WHERE n.tenant_id = 'default' AND n.idempotency_key LIKE $1 || '-%'
GROUP BY n.id
"""

console = Console()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description="A shop's day, and its proof.")
    parser.add_argument("--state", type=Path, help="the folder it keeps (default: .local/demo)")
    chosen: Path | None = parser.parse_args().state
    state = (chosen or ROOT / ".local" / "demo").resolve()
    state.mkdir(parents=True, exist_ok=True)
    try:
        with database(state / "postgres" if chosen else folder_for(ROOT).with_name("postgres-demo")) as url:
            verdict = asyncio.run(_run(state, url))
    except TimeoutError:
        print(f"demo: failed: it did not end within {PATIENCE:.0f} s")
        return 1
    except (NotUp, PostgresError, MigrationError, NotifyQueueError) as error:
        print(f"demo: failed: {error}")
        return 1
    for problem in verdict.problems:
        print(f"demo: wrong: {problem}")
    print("demo: failed" if verdict.problems else verdict.line())
    return 1 if verdict.problems else 0


async def _run(state: Path, url: str) -> Verdict:
    plan = await prepare(state, url, HASTE)
    run = f"demo{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        console.print("starting the services and the sandbox")
        await stack.enter_async_context(running(plan))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = await stack.enter_async_context(connect(plan.address("scheduler"), api_key=plan.key))
        sandbox = Sandbox(session, plan.sandbox_url)
        endpoint = f"500x1+{run}"
        await stack.enter_async_context(_endpoint(plan, sandbox, endpoint))
        day = Day(client, run)
        await _play(day, sandbox)
        console.print("\nwaiting for the last webhooks; the endpoint failed the first time for each")
        ledgers = await _reported(sandbox, endpoint, day.accepted)
        failures = {
            played.act.name: {await sandbox.failures(address) for address in played.addresses if played.act.failures}
            for played in day.played
        }
        return judge(day.played, day.refused_as_told, await _read(url, run), ledgers, failures)


async def _reported(sandbox: Sandbox, endpoint: str, count: int) -> Ledgers:
    """The other side's ledgers once that many webhooks were taken, or as they are when they should have been."""
    deadline = time.monotonic() + PATIENCE
    while len((ledgers := await sandbox.read(endpoint)).events) < count and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.3)
    return ledgers


async def _play(day: Day, sandbox: Sandbox) -> None:
    await sandbox.take_down("PUSH", OUTAGE.total_seconds())
    with Live(_table(day), console=console, refresh_per_second=8) as live:
        playing = asyncio.create_task(day.play())
        async with asyncio.timeout(PATIENCE):
            while not (playing.done() and day.over):
                if playing.done():
                    playing.result()  # which raises what broke it off
                await day.look()
                live.update(_table(day))
                await asyncio.sleep(0.2)


def _table(day: Day) -> Table:
    table = Table(
        Column("what the shop asked for", no_wrap=True), "ended", "how", "attempts", box=SIMPLE_HEAD, pad_edge=False
    )
    for played in day.played:
        how = [f"{status} {count}" for status, count in sorted(played.statuses.items())]
        if played.replays:
            how.append(f"{played.replays} replayed")
        ended = f"{played.ended}/{len(played.ids)}"
        table.add_row(played.act.title, ended, ", ".join(how), str(played.attempts or ""))
    for name, well in day.refused_as_told.items():
        table.add_row(f"a bad {name}", "", "refused, by its name" if well else "NOT REFUSED", "")
    return table


@asynccontextmanager
async def _endpoint(plan: Plan, sandbox: Sandbox, name: str) -> AsyncIterator[None]:
    """A webhook endpoint that is told of every end, and fails the first time for each."""
    metadata = (("authorization", f"Bearer {plan.key}"),)
    request = dispatcher_pb2.CreateEndpointRequest(
        url=f"{plan.sandbox_url}/webhooks/{name}", event_types=[f"notification.{event}" for event in EVENTS]
    )
    async with grpc.aio.insecure_channel(plan.address("dispatcher")) as channel:
        stub = WebhookDispatcherStub(channel)
        made = await stub.CreateEndpoint(request, metadata=metadata)
        try:
            await sandbox.register(name, made.secret)
            yield
        finally:
            gone = dispatcher_pb2.DeleteEndpointRequest(endpoint_id=made.endpoint.endpoint_id)
            await stub.DeleteEndpoint(gone, metadata=metadata)


async def _read(url: str, run: str) -> Rows:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(READ, run)
    finally:
        await connection.close()
    return Rows({row["id"]: row["status"] for row in rows}, Counter({row["id"]: row["events"] for row in rows}))


if __name__ == "__main__":
    sys.exit(main())
