"""What traces and metrics cost: the same drain with nobody listening and with each, turn by turn, so that what else the
machine does falls on all of them.
"""

import asyncio
import os
import statistics
import sys
import timeit
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias
from unittest.mock import patch
from uuid import uuid4

from services.worker import measured, spans
from services.worker.claim import Claim
from services.worker.outcome import Sent
from services.worker.providers import Answer, Outcome
from shared import telemetry
from shared.telemetry import traces

ROUNDS = 5
CALLS = 50_000
PORT = 20_064
Ways: TypeAlias = Mapping[str, Mapping[str, str]]
"""The variables of each."""

SCRAPED = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": str(PORT)}
CALL = spans.smtp("127.0.0.1", 25)
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


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain, of so many."""

    per_second: float
    cpu: float
    """Seconds of this process for each."""


class Drain(Protocol):
    async def __call__(self, *, traced: bool, mail_port: int | None = None) -> Drained:
        """Fills, with what was traced from its client on or not, and drains: by mail, or by a provider that does
        nothing.
        """


async def compared(drain: Drain) -> list[str]:
    async with _sink() as (endpoint, mail_port):
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        ways: Ways = {
            "off": {"OTEL_SDK_DISABLED": "true"},
            "metrics, scraped": SCRAPED,
            "every notification traced": traced | {"OTEL_METRICS_EXPORTER": "none"},
            "both": traced | SCRAPED,
        }
        ends: Ways = {way: ways[way] for way in ("off", "both")}
        nothing = await _rounds(ways, drain)
        mails = await _rounds(ends, partial(drain, mail_port=mail_port))
    idle = _idle_cost()
    rate = statistics.median(one.per_second for one in nothing["off"])
    return [
        f"{'drained, one worker':<52} {'per s':>8} {'ratio':>6} {'CPU, µs':>8}",
        *_lines("a provider that does nothing", nothing),
        *_lines("mail", mails),
        f"what is left while it is off: {idle * 1e6:.1f} µs a notification, {idle * rate:.2%} of its time",
    ]


async def _rounds(ways: Ways, drain: Drain) -> Mapping[str, Sequence[Drained]]:
    found: dict[str, list[Drained]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, environment in ways.items():
            async with _told(environment):
                found[way].append(await drain(traced=traces.on()))
    return found


def _lines(what: str, found: Mapping[str, Sequence[Drained]]) -> Iterator[str]:
    """The ratio is the median of those within a round: the machine is not the same in all."""
    for way, drains in found.items():
        rate, cpu = statistics.median(one.per_second for one in drains), statistics.median(one.cpu for one in drains)
        ratio = statistics.median(on.per_second / off.per_second for on, off in zip(drains, found["off"], strict=True))
        yield f"{what + ', ' + way:<52} {rate:>8,.0f} {ratio:>6.2f} {cpu * 1e6:>8.0f}"


@asynccontextmanager
async def _told(environment: Mapping[str, str]) -> AsyncIterator[None]:
    with patch.dict(os.environ, environment):
        async with telemetry.configured("benchmark", uuid4()):
            yield


def _idle_cost() -> float:
    """Seconds for each notification, of what a worker does where nobody listens: without what else the machine did."""
    taken, empty = (min(timeit.repeat(of, number=CALLS, repeat=ROUNDS)) for of in (_untold, lambda: None))
    return (taken - empty) / CALLS


def _untold() -> None:
    with spans.deliver(CLAIM) as span:
        with spans.call(CALL) as call:
            spans.answered(call, ACCEPTED, "smtp")
        measured.called(CLAIM, "smtp", ACCEPTED, 0.0)
        spans.judged(span, Sent())
        traces.written(span.reference)
    measured.recorded("EMAIL", Sent())


@asynccontextmanager
async def _sink() -> AsyncIterator[tuple[str, int]]:
    """Where traces go, and the port for mails. In a process of its own, as a collector is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sink", str(PORT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        traces_port, mail_port = map(int, (await process.stdout.readline()).split())
        yield f"http://127.0.0.1:{traces_port}", mail_port
    finally:
        process.terminate()
        await process.wait()
