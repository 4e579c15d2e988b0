"""A lane: one channel's own loop, concurrency and provider in a worker. A claim is a start: nothing queues here."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self
from uuid import UUID, uuid4

import structlog

from services.worker import measured
from services.worker.admission import Admission
from services.worker.claim import Claim
from services.worker.delivery import RETURN_DELAY, Delivery, Running, Totals
from services.worker.gates import Gates
from services.worker.outcome import unstarted
from services.worker.providers import Provider
from services.worker.recording import Fence, Recording
from services.worker.shared_lane import Probe, SharedLane
from services.worker.store import CLAIM_LIMITS, LaneLoad, Store
from shared.backoff import Backoff
from shared.batching import Contention, GroupCommit
from shared.clock import tick
from shared.errors import DatabaseUnavailable
from shared.listener import UNHEARD_POLL
from shared.loop import Loop

log = structlog.get_logger()

URGENT_FIRST = (3, 2, 1)
LOW_FIRST = (1, 2, 3)
LOW_FIRST_EVERY = 8  # claims
MIN_SLEEP = 0.05
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
    _asked = False

    @contextmanager
    def ask(self) -> Iterator[bool]:
        """Whether this claim may bring one. As long as it is under way, no other may: its answer may be a suspect."""
        if self._asked or self.holder is not None:
            yield False
            return
        self._asked = True
        try:
            yield True
        finally:
            self._asked = False


class Lane:
    """Claims what fits, hands it to the provider, records how it ended."""

    def __init__(
        self,
        settings: LaneSettings,
        store: Store,
        provider: Provider,
        recording: Recording,
        starts: GroupCommit[Claim, Fence],
        admission: Admission,
        gates: Gates,
        shared: SharedLane,
        *,
        worker_id: UUID,
        backoff: Backoff,
        suspects: SuspectSlot,
        listening: Callable[[], bool],
        address_hash: Callable[[Claim], str | None] = lambda _: None,
    ) -> None:
        """`starts` is the start fence; `listening` says whether a wake-up would be heard; `address_hash` is what stands
        for an address in logs.
        """
        self.settings = settings
        self._shared = shared
        self._gates = gates
        self._store = store
        self._worker_id = worker_id
        self._suspects = suspects
        self._listening = listening
        self._delivery = Delivery(
            provider,
            recording,
            starts,
            admission,
            shared,
            backoff=backoff,
            deadline=settings.deadline,
            draining=lambda: self._draining,
            address_hash=address_hash,
        )
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        self._loop.wake()

    async def pause(self) -> None:
        """Claims nothing more, and gives back what has not started."""
        self._draining = True
        await self._loop.pause()
        try:
            await self._give_back()
        except (DatabaseUnavailable, Contention):
            log.warning("lane.claims_in_doubt", claims=len(self._unclaimed))  # their leases end them

    def resume(self) -> None:
        self._draining = False
        self._loop.resume()

    async def wait_empty(self) -> None:
        """Until nothing is held."""
        await self._empty.wait()

    @property
    def in_flight(self) -> int:
        return len(self._running)

    @property
    def provider(self) -> Provider:
        return self._delivery.provider

    @property
    def totals(self) -> Totals:
        return self._delivery.totals

    @property
    def concurrency(self) -> int:
        """How many it may hold at once, at its present pace."""
        return self._shared.pace.limit

    @property
    def load(self) -> LaneLoad:
        """For the heartbeat."""
        totals = self.totals
        return LaneLoad(self.settings.channel, self.concurrency, self.in_flight, totals.sent, totals.unsent)

    def renewable(self) -> Iterable[Claim]:
        """What is held: until it is recorded, and otherwise not far past its deadline."""
        oldest = tick() - OVERTIME * self.settings.deadline
        for running in self._running.values():
            if not running.lost and (running.recording or running.since > oldest):
                yield running.claim

    def lose(self, claim: Claim) -> None:
        """A renewal found this claim to be somebody else's, unless it is just being recorded."""
        running = self._running.get(claim.notification_id)
        if running and running.claim is claim and not running.recording:
            self._delivery.lose(running)

    # --- claiming

    async def _turn(self) -> float | None:
        await self._give_back()
        if self._shared.paused:
            return None  # until the heartbeat learns otherwise
        if self._shared.held_for > 0:
            return self._shared.held_for
        if not self._has_room():
            return None  # until something ends
        if self._shared.open:
            return await self._probe()
        limit = max(limit for limit in CLAIM_LIMITS if limit <= self._claimable())
        low_first = self._low_first()
        claims = await self._claim(limit, low_first=low_first)
        for claim in claims:
            self._start(claim)
        if low_first or len(claims) == limit:
            return 0
        return await self._time_to_sleep()

    async def _probe(self) -> float | None:
        """While the breaker is open, one notification at a time is sent, over all workers."""
        wait = self._shared.probe_in
        if wait is None or wait > 0:
            return wait
        wait = await self._time_to_sleep()
        if wait > MIN_SLEEP and not await self._gates.open(1):  # what waits is there to be tried, too
            return wait
        probe = Probe(self._shared.opening, uuid4())
        timeout = OVERTIME * self.settings.deadline
        taken = await self._store.take_probe(self.settings.channel, probe, timedelta(seconds=timeout))
        self._shared.delay_probe(timeout if taken else self.settings.poll_interval)
        if taken:
            await self._send_probe(probe)
        return self._shared.probe_in

    async def _send_probe(self, probe: Probe) -> None:
        try:
            claims = await self._claim_probe() or await self._claim(1, low_first=False)
        except Exception:
            self._shared.return_probe(probe)
            raise
        for claim in claims:
            self._start(claim, probe=probe)
        if not claims:
            self._shared.return_probe(probe)

    def _free(self) -> int:
        return self._shared.pace.limit - len(self._running)

    def _claimable(self) -> int:
        """At most half at once: while the database claims or records one half, the other is delivered. All in one go,
        each would stand still for the other.
        """
        return min(self._free(), max(1, self._shared.pace.limit // 2))

    def _has_room(self) -> bool:
        """Few, large claims: a quarter must be free, or nothing runs."""
        return not self._running or self._free() * 4 >= self._shared.pace.limit

    def _low_first(self) -> bool:
        self._claims += 1
        return bool(self.settings.aging) and self._claims % LOW_FIRST_EVERY == 0

    async def _claim(self, limit: int, *, low_first: bool) -> list[Claim]:
        # Whoever calls starts what it gets in the same step: nothing is awaited between this slot and its holder.
        began = tick()
        with self._token() as token, self._suspects.ask() as take_suspect:
            claims = await self._store.claim_due(
                self.settings.channel,
                limit=limit,
                classes=LOW_FIRST if low_first else URGENT_FIRST,
                due_for=self.settings.aging if low_first else timedelta(),
                token=token,
                worker_id=self._worker_id,
                lease=self.settings.lease,
                take_suspect=take_suspect,
            )
            measured.claimed(self.settings.channel, len(claims), began)
            return claims

    async def _claim_probe(self) -> list[Claim]:
        with self._token() as token:
            return await self._store.claim_probe(
                self.settings.channel, token=token, worker_id=self._worker_id, lease=self.settings.lease
            )

    @contextmanager
    def _token(self) -> Iterator[UUID]:
        token = uuid4()
        try:
            yield token
        except DatabaseUnavailable:
            self._unclaimed.add(token)  # it may have been carried out: the answer is what failed
            raise

    async def _give_back(self) -> None:
        for token in tuple(self._unclaimed):
            released = await self._store.release_token(token, self._worker_id)
            self._unclaimed.discard(token)
            log.info("job.released", claim_token=str(token), count=released)

    async def _time_to_sleep(self) -> float:
        poll = self.settings.poll_interval if self._listening() else min(UNHEARD_POLL, self.settings.poll_interval)
        due = await self._store.read_next_due(self.settings.channel, suspects=self._suspects.holder is None)
        return poll if due is None else max(MIN_SLEEP, min(due, poll))

    # --- delivering

    def _start(self, claim: Claim, *, probe: Probe | None = None) -> None:
        running = Running(claim, tick(), probe=probe)
        if claim.notification_id in self._running:
            # Our own lease passed while this process stood still. The older attempt runs to its end; this one waits.
            if probe is not None:
                self._shared.return_probe(probe)
            self._spawn(self._delivery.record(running, unstarted(claim, RETURN_DELAY)))
            return
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
            await self._delivery.run(running)
        finally:
            if running.probe is not None and running.answer is None:
                self._shared.return_probe(running.probe)
            self._forget(running.claim)

    def _forget(self, claim: Claim) -> None:
        del self._running[claim.notification_id]
        if self._suspects.holder == claim.notification_id:
            self._suspects.holder = None
        if not self._running:
            self._empty.set()
        if self._has_room():
            self._loop.wake()
