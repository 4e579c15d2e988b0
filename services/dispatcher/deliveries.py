"""The deliveries under way in this process: claimed as there is room, posted at once, recorded until that is certain.

A delivery that hangs takes no more than its own room: an endpoint has at most its cap under way, and the claim gives
what is free to whoever has the least.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import structlog

from services.dispatcher import spans
from services.dispatcher.claims import Claims
from services.dispatcher.client import Client
from services.dispatcher.delivery import Delivery, Result, signed_post
from services.dispatcher.keys import Keys
from services.dispatcher.outcome import Answer, ErrorClass, Verdict, judge
from services.dispatcher.schedule import Schedule
from shared.backoff import Backoff
from shared.batching import Contention, GroupCommit
from shared.clock import tick
from shared.errors import DatabaseUnavailable, ServerOverloaded
from shared.loop import Loop
from shared.telemetry import metrics, traces
from shared.vault import SealBroken

log = structlog.get_logger()

AFTER_EMPTY = 0.05  # seconds, at least, after a claim that found nothing


@dataclass(frozen=True, slots=True)
class Limits:
    concurrency: int
    max_attempts: int
    shutdown_timeout: float


class Deliveries:
    def __init__(
        self,
        claims: Claims,
        client: Client,
        keys: Keys,
        recording: GroupCommit[Result, bool],
        limits: Limits,
        *,
        poll_interval: Callable[[], float],
    ) -> None:
        self._claims = claims
        self._client = client
        self._keys = keys
        self._recording = recording
        self._limits = limits
        self._poll_interval = poll_interval
        self._schedule = Schedule()
        self._again = Backoff(base=timedelta(milliseconds=200), cap=timedelta(seconds=5))
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.loop = Loop("deliveries", self._turn)
        self.delivered = 0
        self.failed = 0

    async def __aenter__(self) -> Self:
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Claims nothing more, and waits for what runs; what takes too long is left to its lease."""
        await self.loop.__aexit__()
        with suppress(DatabaseUnavailable, Contention):  # then it is left to its lease, too
            await self._claims.give_back_doubtful()
        if not self._tasks:
            return
        late = (await asyncio.wait(self._tasks, timeout=self._limits.shutdown_timeout))[1]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def wait_idle(self) -> None:
        """Until none is under way, nor held by a claim whose answer was lost. Only while the loop is paused."""
        await self._give_back_doubtful()
        await self._idle.wait()

    async def _give_back_doubtful(self) -> None:
        tries = 0
        while True:
            try:
                return await self._claims.give_back_doubtful()
            except (DatabaseUnavailable, Contention):
                tries += 1
                log.warning("webhook.give_back_retry", tries=tries)
                await asyncio.sleep(self._again.delay(tries).total_seconds())

    async def _turn(self) -> float:
        room = self._limits.concurrency - len(self._tasks)
        if room <= 0:
            return self._poll_interval()  # the next one that ends wakes us
        claimed = await self._claims.claim(room)
        for delivery_id, endpoint_id in claimed.given_up:
            log.warning(
                "webhook.given_up", delivery_id=str(delivery_id), endpoint_id=str(endpoint_id), reason="EXHAUSTED"
            )
            metrics.WEBHOOKS.add(1, "given_up", "")
        for delivery in claimed.deliveries:
            self._start(delivery)
        return 0 if claimed.deliveries or claimed.given_up else await self._until_next()

    async def _until_next(self) -> float:
        longest = self._poll_interval()
        seconds = await self._claims.seconds_to_next(longest)
        return longest if seconds is None else min(max(seconds, AFTER_EMPTY), longest)

    def _start(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._run(delivery), name=f"delivery {delivery.id}")
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()
        self.loop.wake()  # there is room, and what it left to do may be due before anything we know of

    async def _run(self, delivery: Delivery) -> None:
        try:
            result = await self._attempt(delivery)
            recorded = await self._record(result)
        except Exception as error:  # a fault of ours: it is left to its lease
            log.error("webhook.failed", **_ids(delivery), exc_info=error)
        else:
            report(result, recorded)

    async def _attempt(self, delivery: Delivery) -> Result:
        began = tick()
        sent_at = delivery.time_at(began)
        with spans.post(delivery) as span:
            try:
                answer = await self._client.post(signed_post(delivery, self._keys, sent_at, traces.headers(span)))
            except SealBroken:
                answer = Answer(error=ErrorClass.ENDPOINT_INVALID)
            spans.answered(span, answer)
        if answer.error is None:
            self.delivered += 1
        else:
            self.failed += 1
        verdict = judge(answer, delivery.attempt, self._limits.max_attempts, self._schedule)
        return Result(delivery, sent_at, timedelta(seconds=tick() - began), answer, verdict)

    async def _record(self, result: Result) -> bool:
        """Whether the claim still held. Tried until the database says so: what was answered is never forgotten."""
        tries = 0
        while True:
            try:
                return await self._recording.submit(result)
            except (DatabaseUnavailable, Contention, ServerOverloaded):
                tries += 1
                log.warning("webhook.record_retry", **_ids(result.delivery), tries=tries)
                await asyncio.sleep(self._again.delay(tries).total_seconds())


def report(result: Result, recorded: bool) -> None:
    """One line for what came of an attempt."""
    verdict, ids = result.verdict, _ids(result.delivery)
    if not recorded:
        came_to = "claim_lost"
        log.warning("webhook.claim_lost", **ids, delivered=verdict.delivered)
    elif verdict.delivered:
        came_to = "delivered"
        log.debug("webhook.delivered", **ids, http_status=result.answer.status)
    elif verdict.give_up_reason:
        came_to = "given_up"
        log.warning("webhook.given_up", **ids, **_failure(result.answer, verdict))
    else:
        came_to = "retry"
        log.warning("webhook.retry", **ids, **_failure(result.answer, verdict))
    metrics.WEBHOOKS.add(1, came_to, result.answer.error or "")
    metrics.WEBHOOK_TIME.record(result.duration.total_seconds(), came_to)


def _ids(delivery: Delivery) -> dict[str, object]:
    return {
        "delivery_id": str(delivery.id),
        "event_id": str(delivery.event_id),
        "endpoint_id": str(delivery.endpoint_id),
        "attempt": delivery.attempt,
    }


def _failure(answer: Answer, verdict: Verdict) -> dict[str, object]:
    return {
        "http_status": answer.status,
        "error_class": answer.error,
        "reason": verdict.give_up_reason,
        "delay_s": verdict.delay and round(verdict.delay.total_seconds(), 1),
        "pause_s": verdict.pause and round(verdict.pause.total_seconds(), 1),
    }
