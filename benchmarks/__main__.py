"""`make bench`: accepted, drained, and how soon, beside the bare statements in the same run."""

import argparse
import asyncio
import platform
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    from shared import starting

    starting.spare_children()

import asyncpg

from benchmarks import bare, lanes, ours, recipients, stats, telemetry
from benchmarks.report import HEADER, Figure, percentile
from sandbox.postgres import Postgres
from shared import logs
from shared.migrations import migrate
from shared.roles import SERVICES, create_roles

IN_FLIGHT = 64
GROUP = 16  # about what 64 calls in flight over four flights gather

FILL = """
WITH written AS (
  INSERT INTO notifyqueue.notifications
    (tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at,
     trace_context)
  SELECT 'default', 'fill-' || n, '', 'EMAIL', 'someone-' || n || '@example.com', 1 + n % 3, 5, now(), now(),
    CASE WHEN $3 THEN format('00-%s-%s-01', md5(n::text), left(md5(n::text), 16)) END
  FROM generate_series(1, $1) AS n
  RETURNING id
)
INSERT INTO notifyqueue.notification_contents (notification_id, content)
SELECT written.id, $2 FROM written
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each accepting run (default: %(default)s)")
    parser.add_argument("--drain", type=int, default=20_000, help="notifications to drain (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=300, help="of latency (default: %(default)s)")
    parser.add_argument(
        "--finished",
        type=int,
        default=300_000,
        help="that have ended beside the stats; 5000000 takes minutes (default: %(default)s)",
    )
    arguments = parser.parse_args()
    logs.configure("benchmark", "ERROR")
    with tempfile.TemporaryDirectory(prefix="notifyqueue-bench-") as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "data", {"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
            figures = asyncio.run(_measure(server.url, arguments.seconds, arguments.drain, arguments.samples))
            shown = asyncio.run(_telling(server.url, arguments.drain))
            shown += asyncio.run(_lanes(server.url, arguments.drain, arguments.samples))
            shown += asyncio.run(_beside(server.url, arguments.drain, arguments.finished))
    print(f"Python {platform.python_version()}, client, services and PostgreSQL on one machine\n")
    print(HEADER)
    for figure in figures:
        print(figure.line())
    print("\n".join(["", *shown]))


async def _measure(url: str, seconds: float, count: int, samples: int) -> list[Figure]:
    await migrate(url)
    await create_roles(url, ours.LOGINS, dict.fromkeys(SERVICES, ours.LOGINS))
    return [*await _latency(url, samples), await _accepting(url, seconds), *await _draining(url, count)]


async def _telling(url: str, count: int) -> list[str]:
    async def drain(*, traced: bool, mail_port: int | None = None) -> telemetry.Drained:
        size = count if mail_port is None else count // 5
        await _fill(url, size, traced=traced)
        began = time.process_time()
        rate = await _drain(url, size, 256, ours.NoOp() if mail_port is None else ours.Mailing(mail_port))
        cpu = time.process_time() - began
        await lanes.empty(url)
        return telemetry.Drained(rate, cpu / size)

    return [*await telemetry.compared(drain), ""]


async def _lanes(url: str, count: int, samples: int) -> list[str]:
    worker = ours.login(url, "worker")
    isolation = await lanes.isolation(url, worker, count, samples)
    outages = [await lanes.outage(url, worker, hangs=hangs) for hangs in (False, True)]
    return [*isolation, "", *outages[0], "", *outages[1], ""]


async def _beside(url: str, count: int, finished: int) -> list[str]:
    others = await recipients.beside_a_hot_one(url, ours.login(url, "worker"), count // 4)
    return [*others, "", *await stats.beside_finished(url, ours.login(url, "scheduler"), finished)]


async def _accepting(url: str, seconds: float) -> Figure:
    alone = await bare.accepted_per_second(url, seconds, GROUP)
    async with ours.scheduler(ours.login(url, "scheduler")) as stub:
        real = await ours.accepted_per_second(stub, seconds, IN_FLIGHT)
    await lanes.empty(url)
    return Figure(f"accepted, unary, {IN_FLIGHT} in flight (bare: groups of {GROUP})", real, alone, "per second")


async def _draining(url: str, count: int) -> list[Figure]:
    await _fill(url, count)
    alone = await bare.drained_per_second(url, count)
    await lanes.empty(url)
    figures = []
    for concurrency in (64, 256, 1024):
        await _fill(url, count)
        real = await _drain(url, count, concurrency, ours.NoOp())
        await lanes.empty(url)
        figures.append(Figure(f"drained, one worker, concurrency {concurrency} (bare: 64)", real, alone, "per second"))
    return figures


async def _drain(url: str, count: int, concurrency: int, provider: ours.NoOp) -> float:
    provider.expect(count)
    connection = await asyncpg.connect(url)
    began = time.monotonic()
    async with ours.worker(ours.login(url, "worker"), provider, concurrency):
        await provider.reached.wait()
        await _all_sent(connection)
        elapsed = time.monotonic() - began
    await connection.close()
    return count / elapsed


async def _all_sent(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    while await connection.fetchval("SELECT count(*) FROM notifyqueue.notifications WHERE status <> 'SENT'"):
        await asyncio.sleep(0.01)


async def _latency(url: str, samples: int) -> list[Figure]:
    alone = await bare.latencies(url, samples)
    await lanes.empty(url)
    provider = ours.NoOp()
    async with (
        ours.scheduler(ours.login(url, "scheduler")) as stub,
        ours.worker(ours.login(url, "worker"), provider, IN_FLIGHT),
    ):
        await ours.latencies(stub, provider, 20, "warm-up")  # connections and plans
        real = await ours.latencies(stub, provider, samples, "ours")
    await lanes.empty(url)
    return [
        Figure(f"idle, accept to provider, p{n}", percentile(real, n) * 1e3, percentile(alone, n) * 1e3, "ms")
        for n in (50, 99)
    ]


async def _fill(url: str, count: int, *, traced: bool = False) -> None:
    """As fresh as a burst leaves it: never analysed."""
    connection = await asyncpg.connect(url)
    await connection.execute(FILL, count, bare.CONTENT, traced)
    await connection.close()


if __name__ == "__main__":
    main()
