"""A lane: one channel's own loop, concurrency and provider in a worker. A claim is a start: nothing queues here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self
from uuid import UUID, uuid4

import structlog

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
    unstarted,
)
from services.worker.providers import Provider
from services.worker.recording import Recording
from services.worker.store import CLAIM_LIMITS, Store
from shared.backoff import Backoff
from shared.batching import GroupCommit
from shared.clock import tick
from shared.errors import DatabaseUnavailable
from shared.loop import Loop

log = structlog.get_logger()

URGENT_FIRST = (3, 2, 1)
LOW_FIRST = (1, 2, 3)
LOW_FIRST_EVERY = 8  # claims
FRESH = 1.0  # seconds after it was asked for during which a claim is surely ours
MIN_SLEEP = 0.05
POLL_UNHEARD = 1.0
RETURN_DELAY = timedelta(seconds=5)
OVERTIME = 2  # deadlines; an adapter that outlives its own is not covered for ever


@dataclass(frozen=True, slots=True)
class LaneSettings:
    channel: str
    concurrency: int
    deadline: float
    """Seconds that one attempt may take, whatever its provider does."""
    lease: timedelta
    poll_interval: float
    aging: timedelta
    """What has been due for longer is served first by one claim in eight; zero: never."""


class SuspectSlot:
    """A worker runs one crash suspect at a time, over all lanes: it may take down whatever else runs."""

    holder: UUID | None = None


@dataclass(slots=True)
class Running:
    """A claim that is held, until it is recorded."""

    claim: Claim
    since: float
    recording: bool = False
    lost: bool = False


@dataclass(slots=True)
class Totals:
    sent: int = 0
    unsent: int = 0
    claims_lost: int = 0


class Lane:
    """Claims what fits, hands it to the provider, records how it ended."""

    def __init__(
        self,
        settings: LaneSettings,
        store: Store,
        provider: Provider,
        recording: Recording,
        starts: GroupCommit[Claim, bool],
        *,
        worker_id: UUID,
        backoff: Backoff,
        suspects: SuspectSlot,
        listening: Callable[[], bool],
    ) -> None:
        """`starts` is the start fence; `listening` says whether a wake-up would be heard."""
        self.settings = settings
        self.provider = provider
        self.totals = Totals()
        self._store = store
        self._recording = recording
        self._starts = starts
        self._worker_id = worker_id
        self._backoff = backoff
        self._suspects = suspects
        self._listening = listening
        self._running: dict[UUID, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unclaimed: set[UUID] = set()
        self._claims = 0
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = Loop(f"lane {settings.channel}", self._turn)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the loop; what still runs is broken off and left to its lease."""
        await self._loop.__aexit__()
        with suppress(DatabaseUnavailable):
            await self._give_back()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        self._loop.wake()

    async def pause(self) -> None:
        """Claims nothing more, and gives back what has not started."""
        self._draining = True
        await self._loop.pause()

    def resume(self) -> None:
        self._draining = False
        self._loop.resume()

    async def wait_empty(self) -> None:
        """Until nothing is held."""
        await self._empty.wait()

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def renewable(self) -> Iterable[Claim]:
        """What is held and neither past its deadline nor being recorded."""
        oldest = tick() - OVERTIME * self.settings.deadline
        for running in self._running.values():
            if not running.recording and not running.lost and running.since > oldest:
                yield running.claim

    def note_missing(self, ids: set[UUID]) -> None:
        """A renewal did not find these. Lost are those that are still held and not just being recorded."""
        for notification_id in ids & self._running.keys():
            if not self._running[notification_id].recording:
                self._lose(self._running[notification_id])

    # --- claiming

    async def _turn(self) -> float | None:
        await self._give_back()
        if not self._has_room():
            return None  # until something ends
        limit = max(limit for limit in CLAIM_LIMITS if limit <= self._free())
        low_first = self._low_first()
        claims = await self._claim(limit, low_first=low_first)
        for claim in claims:
            self._start(claim)
        if low_first or len(claims) == limit:
            return 0
        return await self._time_to_sleep()

    def _free(self) -> int:
        return self.settings.concurrency - len(self._running)

    def _has_room(self) -> bool:
        """Few, large claims: a quarter must be free, or nothing runs."""
        return not self._running or self._free() * 4 >= self.settings.concurrency

    def _low_first(self) -> bool:
        self._claims += 1
        return bool(self.settings.aging) and self._claims % LOW_FIRST_EVERY == 0

    async def _claim(self, limit: int, *, low_first: bool) -> list[Claim]:
        token = uuid4()
        try:
            return await self._store.claim_due(
                self.settings.channel,
                limit=limit,
                classes=LOW_FIRST if low_first else URGENT_FIRST,
                due_for=self.settings.aging if low_first else timedelta(),
                token=token,
                worker_id=self._worker_id,
                lease=self.settings.lease,
                take_suspect=self._suspects.holder is None,
            )
        except DatabaseUnavailable:
            self._unclaimed.add(token)  # it may have been carried out: the answer is what failed
            raise

    async def _give_back(self) -> None:
        for token in tuple(self._unclaimed):
            released = await self._store.release_token(token, self._worker_id)
            self._unclaimed.discard(token)
            log.info("job.released", claim_token=str(token), count=released)

    async def _time_to_sleep(self) -> float:
        poll = self.settings.poll_interval if self._listening() else min(POLL_UNHEARD, self.settings.poll_interval)
        due = await self._store.read_next_due(self.settings.channel, suspects=self._suspects.holder is None)
        return poll if due is None else max(MIN_SLEEP, min(due, poll))

    # --- delivering

    def _start(self, claim: Claim) -> None:
        if claim.notification_id in self._running:
            # Our own lease passed while this process stood still. The older attempt runs to its end; this one waits.
            self._spawn(self._record(Running(claim, tick()), unstarted(claim, RETURN_DELAY)))
            return
        running = Running(claim, tick())
        self._running[claim.notification_id] = running
        self._empty.clear()
        if claim.suspect:
            self._suspects.holder = claim.notification_id
        self._spawn(self._run(running))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, running: Running) -> None:
        try:
            verdict = await self._deliver(running)
            if verdict is not None:
                await self._record(running, verdict)
        finally:
            self._forget(running.claim)

    def _forget(self, claim: Claim) -> None:
        del self._running[claim.notification_id]
        if self._suspects.holder == claim.notification_id:
            self._suspects.holder = None
        if not self._running:
            self._empty.set()
        if self._has_room():
            self._loop.wake()

    async def _deliver(self, running: Running) -> Verdict | None:
        """The verdict on a claim; None if it is not ours any more."""
        claim = running.claim
        if claim.time_left is not None and claim.time_left <= timedelta():
            return expired(claim)
        if claim.content is None:
            return content_erased()
        if claim.at_most_once or tick() - claim.asked_at > FRESH:
            try:
                ours = await self._starts.submit(claim)
            except DatabaseUnavailable:
                return unstarted(claim, RETURN_DELAY)
            if not ours:
                self._lose(running)
                return None
        if self._draining:
            return unstarted(claim)
        outcome = await attempt(claim, claim.content, self.provider, self.settings.deadline)
        return judge(claim, outcome, self._backoff)

    async def _record(self, running: Running, verdict: Verdict) -> None:
        running.recording = True
        claim = running.claim
        try:
            ours = await self._recording.record(claim, verdict)
        except Exception as error:  # the lease ends it
            log.error("job.unrecorded", notification_id=str(claim.notification_id), exc_info=error)
            return
        if ours:
            self._count(verdict)
            _log(running, verdict)
        else:
            self._lose(running)

    def _count(self, verdict: Verdict) -> None:
        if isinstance(verdict, Sent):
            self.totals.sent += 1
        elif verdict.kind is not None:
            self.totals.unsent += 1

    def _lose(self, running: Running) -> None:
        if not running.lost:
            running.lost = True
            self.totals.claims_lost += 1
            log.warning(
                "job.claim_lost", notification_id=str(running.claim.notification_id), attempt=running.claim.number
            )


def _log(running: Running, verdict: Verdict) -> None:
    if isinstance(verdict, Sent) and not log.is_enabled_for(logging.DEBUG):
        return  # a line for each would be a third of a core
    facts = {
        "notification_id": str(running.claim.notification_id),
        "attempt": running.claim.number,
        "duration_ms": round((tick() - running.since) * 1e3, 1),
    }
    match verdict:
        case Sent():
            log.debug("job.sent", **facts)
        case Ended(reason=None):
            log.warning("job.expired", **facts)
        case Ended(reason=reason, code=code):
            event = "job.dead_letter" if reason == "ATTEMPTS_EXHAUSTED" else "job.fail"
            log.warning(event, reason=reason, code=code, **facts)
        case Later(kind=None):
            log.info("job.released", **facts)
        case Later(delay=delay, code=code, kind=kind):
            event = "job.unknown" if kind == UNKNOWN_ATTEMPT else "job.retry"
            log.info(event, code=code, delay_s=round(delay.total_seconds(), 3), **facts)
