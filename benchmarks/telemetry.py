"""What traces and metrics cost: the same drain with nobody listening and with each, turn by turn, so that what else the
machine does falls on all of them.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from unittest.mock import patch
from uuid import uuid4

from benchmarks.report import Share
from services.worker import measured, spans
from services.worker.claim import Claim
from services.worker.outcome import Sent
from services.worker.providers import Answer, Outcome
from shared import telemetry
from shared.telemetry import traces

ROUNDS = 3
CALLS = 50_000
PORT = 20_064
SCRAPED = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": str(PORT)}
ACCEPTED = Outcome(Answer.ACCEPTED, provider_message_id="m")

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


async def compared(drain: Callable[[bool], Awaitable[float]]) -> list[str]:
    """`drain` fills, with what was traced from its client on or not, drains, and answers how many a second."""
    async with _sink() as endpoint:
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        ways: Mapping[str, Mapping[str, str]] = {
            "off": {"OTEL_SDK_DISABLED": "true"},
            "metrics, scraped": SCRAPED,
            "every notification traced": traced | {"OTEL_METRICS_EXPORTER": "none"},
            "both": traced | SCRAPED,
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, environment in ways.items():
                async with _told(environment):
                    found[way].append(await drain(traces.on()))
    rates = {way: statistics.median(rates) for way, rates in found.items()}
    idle = _idle_cost()
    return [
        Share.header("off", "on"),
        *(Share(f"drained, {way}", rates["off"], rate, "per second").line() for way, rate in rates.items()),
        f"what is left while it is off: {idle * 1e6:.1f} µs a notification, {idle * rates['off']:.2%} of its time",
    ]


@asynccontextmanager
async def _told(environment: Mapping[str, str]) -> AsyncIterator[None]:
    with patch.dict(os.environ, environment):
        async with telemetry.configured("benchmark", uuid4()):
            yield


def _idle_cost() -> float:
    """Seconds for each notification, of what a worker does where nobody listens."""
    began = time.perf_counter()
    for _ in range(CALLS):
        pass
    empty = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(CALLS):
        with spans.deliver(CLAIM) as span:
            context = traces.context(span)
            measured.called(CLAIM, "smtp", ACCEPTED, 0.0)
            spans.judged(span, Sent())
        traces.stored(context)
        measured.recorded("EMAIL", Sent())
    return max(0.0, time.perf_counter() - began - empty) / CALLS


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    """In a process of its own, as a collector is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sink", str(PORT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()
