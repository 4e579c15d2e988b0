"""One claim from its start to its record: what must hold before a call, the call, and what is written about it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog

from services.worker import measured, spans
from services.worker.admission import Admission, Entry
from services.worker.attempt import attempt
from services.worker.claim import Claim
from services.worker.outcome import (
    UNKNOWN_ATTEMPT,
    Ended,
    Later,
    Sent,
    Verdict,
    content_erased,
    expired,
    judge,
    suppressed,
    unstarted,
)
from services.worker.providers import Answer, Provider
from services.worker.recording import Fence, Recording
from services.worker.shared_lane import Probe, SharedLane
from shared import suppression
from shared.backoff import Backoff
from shared.batching import GroupCommit
from shared.clock import tick
from shared.telemetry import metrics
from shared.telemetry.spans import Reference

log = structlog.get_logger()

FRESH = 1.0  # seconds after it was asked for during which a claim is surely ours
RETURN_DELAY = timedelta(seconds=5)


@dataclass(slots=True)
class Running:
    """A claim that is held, until it is recorded."""

    claim: Claim
    since: float
    probe: Probe | None = None
    answer: Answer | None = None
    recording: bool = False
    lost: bool = False
    trace: Reference | None = None
    """Its span."""


@dataclass(slots=True)
class Totals:
    sent: int = 0
    unsent: int = 0
    claims_lost: int = 0


class Delivery:
    """Delivers claims, many at once, by one provider."""

    def __init__(
        self,
        provider: Provider,
        recording: Recording,
        starts: GroupCommit[Claim, Fence],
        admission: Admission,
        shared: SharedLane,
        *,
        backoff: Backoff,
        deadline: float,
        draining: Callable[[], bool],
        address_hash: Callable[[Claim], str | None] = lambda _: None,
    ) -> None:
        """`starts` is the start fence; `draining` says whether what has not started goes back; `address_hash` is what
        stands for an address in logs.
        """
        self.provider = provider
        self.totals = Totals()
        self._recording = recording
        self._starts = starts
        self._admission = admission
        self._shared = shared
        self._backoff = backoff
        self._deadline = deadline
        self._draining = draining
        self._address_hash = address_hash

    async def run(self, running: Running) -> None:
        """Raises nothing but CancelledError."""
        with spans.deliver(running.claim) as span:
            running.trace = span.reference
            verdict = await self._deliver(running)
            spans.judged(span, verdict, self.provider.name)
            if verdict is None:
                return
            await self.record(running, verdict)
        if running.claim.granted and running.answer is None and isinstance(verdict, Ended):
            await self._admission.leave(running.claim)

    async def record(self, running: Running, verdict: Verdict) -> None:
        running.recording = True
        try:
            ours = await self._recording.record(running.claim, verdict, trace=running.trace)
        except Exception as error:  # the lease ends it
            log.error("job.unrecorded", exc_info=error, **self._facts(running))
            return
        if ours:
            self._count(verdict)
            measured.recorded(running.claim.channel, verdict)
            self._log(running, verdict)
        else:
            self.lose(running)

    def lose(self, running: Running) -> None:
        """The claim is not ours any more. What was sent cannot be called back, and is not recorded."""
        if not running.lost:
            running.lost = True
            self.totals.claims_lost += 1
            metrics.LOST.add(1, running.claim.channel)
            log.warning("job.claim_lost", **self._facts(running))

    async def _deliver(self, running: Running) -> Verdict | None:
        """The verdict on a claim; None if it is not ours any more."""
        claim = running.claim
        if reason := suppression.reason(claim.suppressed_by):
            return suppressed(claim, reason)
        if claim.content is None:
            return content_erased()
        if claim.limited:
            return await self._deliver_admitted(running, claim.content)
        if claim.at_most_once or tick() - claim.asked_at > FRESH:
            fence = await self._start_fence(running)
            if fence is Fence.LOST:
                self.lose(running)
                return None
            if fence is Fence.BUSY:
                return unstarted(claim.aged(), RETURN_DELAY)
        if self._draining():
            return unstarted(claim.aged())
        if claim.aged().overdue:
            return expired(claim)
        return await self._call(running, claim.content)

    async def _deliver_admitted(self, running: Running, content: Mapping[str, object]) -> Verdict | None:
        """Likewise, where its recipient's limit decides when it starts. It is asked again when it comes too late."""
        claim = running.claim
        took_slot = False
        while True:
            if self._draining():
                verdict: Verdict = unstarted(claim.aged())
                break
            if claim.aged().overdue:
                verdict = expired(claim)
                break
            running.recording = True  # it may be put to wait: a renewal that sees it does not call it lost
            ticket = await self._admission.ask(claim)
            running.recording = False
            took_slot |= ticket.took_slot
            if ticket.entry is Entry.LOST:
                self.lose(running)
                return None
            if ticket.entry is Entry.WAITS:
                metrics.WAITING.add(1, claim.channel)
                opens_in = round(ticket.opens_in.total_seconds(), 3)
                log.info("job.waiting", gate_opens_in_s=opens_in, **self._facts(running))
                return None
            if ticket.entry is Entry.BUSY:
                verdict = unstarted(claim.aged())  # it keeps its place, and has waited long enough
                break
            if ticket.entry is Entry.FAILED:
                verdict = unstarted(claim.aged(), RETURN_DELAY)
                break
            if tick() <= ticket.good_until and not (claim.aged().overdue or self._draining()):
                return await self._call(running, content)
        if took_slot:
            await self._admission.give_back(claim)
        return verdict

    async def _call(self, running: Running, content: Mapping[str, object]) -> Verdict:
        claim = running.claim
        began = tick()
        outcome = await attempt(claim, content, self.provider, self._deadline)
        measured.called(claim, self.provider.name, outcome, began)
        outcome = self._shared.observe(claim, outcome, probe=running.probe)
        running.answer = outcome.answer
        given_up = running.probe is not None or self._shared.open
        return judge(claim.aged(), outcome, self._backoff, given_up=given_up)

    async def _start_fence(self, running: Running) -> Fence:
        try:
            return await self._starts.submit(running.claim)
        except Exception as error:  # no call was made: it goes back, whatever this was
            log.warning("job.not_started", exc_info=error, **self._facts(running))
            return Fence.BUSY

    def _count(self, verdict: Verdict) -> None:
        if isinstance(verdict, Sent):
            self.totals.sent += 1
        elif verdict.kind is not None:
            self.totals.unsent += 1

    def _facts(self, running: Running) -> dict[str, object]:
        claim = running.claim
        facts: dict[str, object] = {
            "notification_id": str(claim.notification_id),
            "attempt": claim.number,
            "duration_ms": round((tick() - running.since) * 1e3, 1),
        }
        if address_hash := self._address_hash(claim):
            facts["address_hash"] = address_hash
        return facts

    def _log(self, running: Running, verdict: Verdict) -> None:
        if isinstance(verdict, Sent) and not log.is_enabled_for(logging.DEBUG):
            return  # a line for each would be a third of a core
        facts = self._facts(running)
        match verdict:
            case Sent():
                log.debug("job.sent", **facts)
            case Ended(reason=None):
                log.warning("job.expired", **facts)
            case Ended(reason=reason) if reason in suppression.REASONS:
                log.info("job.suppressed", reason=reason, **facts)
            case Ended(reason="ATTEMPTS_EXHAUSTED", code=code):
                log.warning("job.dead_letter", reason="ATTEMPTS_EXHAUSTED", code=self._told(code), **facts)
            case Ended(reason=reason, code=code):
                log.warning("job.fail", reason=reason, code=self._told(code), **facts)
            case Later(kind=None):
                log.info("job.released", **facts)
            case Later(kind=kind, delay=delay, code=code) if kind == UNKNOWN_ATTEMPT:
                log.info("job.unknown", code=self._told(code), delay_s=round(delay.total_seconds(), 3), **facts)
            case Later(delay=delay, code=code):
                log.info("job.retry", code=self._told(code), delay_s=round(delay.total_seconds(), 3), **facts)

    def _told(self, code: str | None) -> str | None:
        return measured.told_code(self.provider.name, code)
