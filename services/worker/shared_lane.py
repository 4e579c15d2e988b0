"""A lane as all workers know it: paused by a person, held or given up because of its provider.

The lane's row in the database decides; this is what a worker last read of it, what it has seen itself, and the changes
it wants to write. The heartbeat reads and writes.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from services.worker.breaker import Breaker, Pace
from services.worker.claim import Claim
from services.worker.outcome import MAX_NOT_BEFORE
from services.worker.providers import Answer, Outcome
from shared.backoff import Backoff
from shared.clock import tick

MIN_HOLD = timedelta(seconds=1)

# By this part of the first delay a worker whose probe failed lets the others go first: the fault may be its own.
COURTESY = 0.2

# One that is throttled costs no attempt, so nothing but this makes it rarer; held up by it is the whole lane.
REST = Backoff(timedelta(seconds=1), timedelta(minutes=15))
REMEMBERED = 1_000  # notifications that were throttled

# The provider works, whatever it thinks of the notification.
ANSWERED = frozenset({Answer.ACCEPTED, Answer.PERMANENT_MESSAGE, Answer.PERMANENT_ADDRESS})
FAILED = frozenset({Answer.TRANSIENT, Answer.UNKNOWN, Answer.MISCONFIGURED})


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """A lane's row, with its times as seconds from when it was read."""

    channel: str
    paused: bool
    opening: int
    """Which opening of the breaker this is, or was."""
    open: bool
    probe_in: float
    held_for: float


@dataclass(frozen=True, slots=True)
class Probe:
    """The one notification that may be sent while the breaker is open."""

    opening: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Open:
    """Open the breaker, if nobody has since `opening`."""

    opening: int
    cause: str


@dataclass(frozen=True, slots=True)
class Close:
    """A probe was answered."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class DelayProbe:
    """A probe failed."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class ReturnProbe:
    """There was nothing to probe with, or no call was made."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Hold:
    """The provider wants to be left alone until then, as `tick` counts."""

    until: float

    @property
    def span(self) -> timedelta:
        return timedelta(seconds=max(0.0, self.until - tick()))


Change = Open | Close | DelayProbe | ReturnProbe | Hold


class SharedLane:
    def __init__(
        self,
        channel: str,
        concurrency: int,
        *,
        first_rest: float = 5.0,
        longest_rest: float = 60.0,
        unfit: str | None = None,
    ) -> None:
        """`first_rest` and `longest_rest` are seconds: how long a worker that fails alone leaves its provider alone.
        `unfit` says why this worker can deliver nothing at all.
        """
        self.channel = channel
        self.pace = Pace(concurrency)
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is a change to write."""
        self.provider = ""
        """The name of whom this worker delivers by."""
        self._breaker = Breaker()
        # Nothing is claimed before the row has been read once.
        self._facts = LaneFacts(channel, paused=True, opening=0, open=False, probe_in=0, held_for=0)
        self._read_at = tick()
        self._changes: list[Change] = []
        self._taken: list[Change] = []
        """What is being written, or is, and was not read yet: until then only we know."""
        self._throttled: OrderedDict[UUID, int] = OrderedDict()
        self._counted_from = 0.0
        self._closed: Probe | None = None
        self._others_are_answered = False
        self._first_rest, self._longest_rest = first_rest, longest_rest
        self._rest = 0.0
        self._rests_until = 0.0
        self._courtesy = 0.0
        self._unfit = unfit
        self._accused = False

    # --- before a claim

    @property
    def fit(self) -> bool:
        """Whether this worker can deliver, whatever the provider's health."""
        return self._unfit is None

    @property
    def paused(self) -> bool:
        """Whether nothing is claimed, not even a probe."""
        return self._facts.paused or not self.fit

    @property
    def held_for(self) -> float:
        """Seconds; not above 0 where nothing is held."""
        asked = max((change.until for change in self._unread() if isinstance(change, Hold)), default=0.0)
        return max(self._facts.held_for - (tick() - self._read_at), asked - tick(), self._rests_until - tick())

    @property
    def open(self) -> bool:
        """Whether nothing but probes is sent."""
        return self._facts.open or any(isinstance(change, Open) for change in self._unread())

    @property
    def opening(self) -> int:
        return self._facts.opening

    @property
    def probe_in(self) -> float | None:
        """Seconds until a probe may start. None: not before the row is read again, or not by this worker."""
        if not self._facts.open or self._rest:
            return None
        return self._facts.probe_in - (tick() - self._read_at) + self._courtesy

    def delay_probe(self, seconds: float) -> None:
        """A probe was just asked for: the row says when there may be another, and is read again."""
        self._facts, self._read_at = replace(self._facts, probe_in=seconds, held_for=self.held_for), tick()
        self._courtesy = 0.0

    # --- after an attempt

    def observe(self, claim: Claim, outcome: Outcome, *, probe: Probe | None) -> Outcome:
        """The outcome as it is to be believed. `probe` says that it was one."""
        outcome = self._breaker.weigh(outcome)
        if outcome.answer is Answer.THROTTLED:
            outcome = self._throttle(claim.notification_id, outcome)
        if outcome.answer is Answer.ACCEPTED:
            self._accept(claim.notification_id)
        if probe is not None:
            self._conclude(probe, outcome.answer)
        elif not self.open and claim.asked_at >= self._counted_from:
            self._count(claim.notification_id, outcome)
        return outcome

    def return_probe(self, probe: Probe) -> None:
        self._change(ReturnProbe(probe))

    # --- for the heartbeat

    def take_changes(self) -> list[Change]:
        """To be written before the row is read again."""
        changes, self._changes = self._changes, []
        self._taken += changes
        return changes

    def put_back(self, changes: list[Change]) -> None:
        """They could not be written."""
        self._taken = [change for change in self._taken if change not in changes]
        self._changes = [*changes, *self._changes]

    def apply(self, facts: LaneFacts) -> bool:
        """What was read. Answers whether it says anything new."""
        before = self._facts
        if facts.opening != before.opening or facts.open != before.open:
            # What began before says nothing about the provider of now.
            self._breaker.reset()
            self._counted_from = tick()
        if before.open and not facts.open:
            self._others_are_answered = self._closed is None or self._closed.opening != facts.opening
        if facts.held_for > 0 and self.held_for < -MIN_HOLD.total_seconds():
            self.pace.slow_down()  # another worker met it
        self._facts, self._read_at, self._taken = facts, tick(), []
        self._accuse()
        return (before.paused, before.open, before.opening) != (facts.paused, facts.open, facts.opening)

    def _unread(self) -> list[Change]:
        return [*self._taken, *self._changes]

    def _accuse(self) -> None:
        """What this worker lacks is told by the breaker, once: a worker that has it closes it with the first probe."""
        if self._unfit is not None and not self._accused:
            self._accused = True
            if not self._facts.open:
                self._change(Open(self._facts.opening, self._unfit))

    def _accept(self, notification_id: UUID) -> None:
        self.pace.accept()
        self._throttled.pop(notification_id, None)
        self._others_are_answered = False
        self._rest = 0.0

    def _conclude(self, probe: Probe, answer: Answer) -> None:
        if answer in ANSWERED:
            self._closed = probe
            self._change(Close(probe))
        else:
            self._courtesy = COURTESY * self._first_rest
            self._change(DelayProbe(probe))

    def _count(self, notification_id: UUID, outcome: Outcome) -> None:
        trips = self._breaker.trips(notification_id, outcome.answer)
        if self._others_are_answered and (trips or (self._rest and outcome.answer in FAILED)):
            self._step_back()
        elif trips:
            self._breaker.reset()
            self._change(Open(self._facts.opening, outcome.code or "none"))

    def _step_back(self) -> None:
        """Others are answered where this worker is not: the fault is here, and the lane is theirs."""
        self._breaker.reset()
        self._rest = min(max(2 * self._rest, self._first_rest), self._longest_rest)
        self._rests_until = tick() + self._rest
        self.pace.limit = 1

    def _throttle(self, notification_id: UUID, outcome: Outcome) -> Outcome:
        """Holds the lane, and for longer and longer the notification itself."""
        span = min(max(outcome.not_before, MIN_HOLD), MAX_NOT_BEFORE)
        if self.held_for <= 0:  # once for all that were under way
            self.pace.slow_down()
        hold = Hold(tick() + span.total_seconds())
        if hold.until - tick() > self.held_for:
            self._changes = [change for change in self._changes if not isinstance(change, Hold)]
            self._change(hold)
        times = self._throttled.pop(notification_id, 0) + 1
        self._throttled[notification_id] = times
        if len(self._throttled) > REMEMBERED:
            self._throttled.popitem(last=False)
        return replace(outcome, not_before=max(outcome.not_before, REST.delay(times)))

    def _change(self, change: Change) -> None:
        self._changes.append(change)
        self.on_change()
