"""What traces cost: the same drain with nobody listening and with a collector, turn by turn, so that what else the
machine does falls on both.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from unittest.mock import patch
from uuid import uuid4

from benchmarks.report import Share
from services.worker import spans
from services.worker.claim import Claim
from services.worker.outcome import Sent
from shared import telemetry
from shared.telemetry import traces

ROUNDS = 3
CALLS = 50_000

CLAIM = Claim(
    notification_id=uuid4(),
    claim_token=uuid4(),
    channel="EMAIL",
    number=1,
    max_attempts=5,
    at_most_once=False,
    reconciled=False,
    maybe_delivered=False,
    time_left=None,
    address="someone@example.com",
    content={},
    expiries=0,
    asked_at=0.0,
    tenant_id="default",
    limited=False,
)


async def compared(drain: Callable[[], Awaitable[float]]) -> list[str]:
    """`drain` fills and drains once, and answers how many a second."""
    off, on = [], []
    async with _sink() as endpoint:
        for _ in range(ROUNDS):
            off.append(await drain())
            with patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}):
                async with telemetry.configured("benchmark", uuid4()):
                    on.append(await drain())
    without, beside = statistics.median(off), statistics.median(on)
    idle = _idle_cost()
    return [
        Share.header("off", "on"),
        Share("drained, every notification traced", without, beside, "per second").line(),
        f"what is left of it while it is off: {idle * 1e6:.1f} µs a notification, {idle * without:.2%} of its time",
    ]


def _idle_cost() -> float:
    """Seconds for each notification, of what a worker does where nobody listens."""
    began = time.perf_counter()
    for _ in range(CALLS):
        with nullcontext():
            pass
    empty = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(CALLS):
        with spans.deliver(CLAIM) as span:
            context = traces.context(span)
            spans.judged(span, Sent())
        traces.stored(context)
    return max(0.0, time.perf_counter() - began - empty) / CALLS


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    """In a process of its own, as a collector is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sink"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()
