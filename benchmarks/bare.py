"""The same statements without us: what PostgreSQL and asyncpg give on this machine."""

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg

from services.scheduler.store import sql as scheduler_sql
from services.worker.store import CLAIM
from services.worker.store import sql as worker_sql
from shared.listener import lane_topic

CONTENT = json.dumps({"subject": "Hello", "text": "x" * 200})
CONNECTIONS = 4
URGENT_FIRST = [3, 2, 1]


async def accepted_per_second(url: str, seconds: float, group: int) -> float:
    """Groups of `group` notifications, looked up and inserted, on four connections."""
    numbers = itertools.count()

    async def insert(connection: "asyncpg.Connection[asyncpg.Record]", until: float) -> int:
        written = 0
        while time.monotonic() < until:
            keys = [f"bare-{next(numbers)}" for _ in range(group)]
            tenants, _, _, channels, addresses, *_ = asked = _columns(keys)
            none = [None] * group  # templates, and spans
            await connection.fetch(
                scheduler_sql["look_up_keys"], tenants, keys, channels, addresses, [""] * group, none, none
            )
            written += len(await connection.fetch(scheduler_sql["insert_notifications"], *asked, 5, none))
        return written

    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    counts = await asyncio.gather(*(insert(connection, began + seconds) for connection in connections))
    elapsed = time.monotonic() - began
    await asyncio.gather(*(connection.close() for connection in connections))
    return sum(counts) / elapsed


def _columns(keys: Sequence[str]) -> list[list[object]]:
    times: list[object] = [None] * 4
    same = [b"\1", "EMAIL", "someone@example.com", 2, *times, False, "", None, "{}", CONTENT, None, None]
    return [["default"] * len(keys), list(keys), *([value] * len(keys) for value in same)]


async def drained_per_second(url: str, count: int) -> float:
    """Claims of 64 and their completions, on four connections, until `count` are done."""
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    done = sum(await asyncio.gather(*map(_drain, connections)))
    elapsed = time.monotonic() - began
    await asyncio.gather(*(connection.close() for connection in connections))
    if done != count:
        raise RuntimeError(f"{done} of {count} were drained")
    return done / elapsed


async def _drain(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    done = 0
    while claimed := await _claim(connection, 64):
        ids, token = claimed
        none = [None] * len(ids)
        await connection.fetch(worker_sql["mark_sent"], sorted(ids), [token] * len(ids), ["m"] * len(ids), none)
        done += len(ids)
    return done


async def _claim(connection: "asyncpg.Connection[asyncpg.Record]", limit: int) -> tuple[list[UUID], UUID] | None:
    token = uuid4()
    rows = await connection.fetch(
        CLAIM[limit], "EMAIL", URGENT_FIRST, timedelta(), token, uuid4(), timedelta(minutes=1), True
    )
    return ([row["id"] for row in rows], token) if rows else None


async def latencies(url: str, count: int) -> list[float]:
    """Seconds from the start of an insert to the end of the claim that its NOTIFY woke."""
    writer, listener, claimer = [await asyncpg.connect(url) for _ in range(3)]
    woken = asyncio.Event()
    await listener.add_listener(lane_topic("EMAIL"), lambda *_: woken.set())
    found = []
    for number in range(count):
        woken.clear()
        began = time.monotonic()
        await writer.fetch(scheduler_sql["insert_notifications"], *_columns([f"bare-late-{number}"]), 5, [None])
        await writer.execute("SELECT pg_notify($1, '')", lane_topic("EMAIL"))
        await woken.wait()
        if not await _claim(claimer, 1):
            raise RuntimeError("what was inserted could not be claimed")
        found.append(time.monotonic() - began)
    await asyncio.gather(writer.close(), listener.close(), claimer.close())
    return found
