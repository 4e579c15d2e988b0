"""A lane as all workers know it: paused by a person, held or given up because of its provider.

The lane's row in the database decides; this is what a worker last read of it, what it has seen itself, and the changes
it wants to write. The heartbeat reads and writes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from services.worker.breaker import Breaker, Pace
from services.worker.claim import Held
from services.worker.outcome import MAX_NOT_BEFORE
from services.worker.providers import Answer, Outcome
from shared.clock import tick

MIN_HOLD = timedelta(seconds=1)

# The provider works, whatever it thinks of the notification.
ANSWERED = frozenset({Answer.ACCEPTED, Answer.PERMANENT_MESSAGE, Answer.PERMANENT_ADDRESS})


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
class Open:
    """Open the breaker, if nobody has."""

    cause: str


@dataclass(frozen=True, slots=True)
class Close:
    """A probe was answered."""

    opening: int


@dataclass(frozen=True, slots=True)
class DelayProbe:
    """A probe failed."""

    opening: int


@dataclass(frozen=True, slots=True)
class ReturnProbe:
    """There was nothing to probe with, or no call was made."""

    opening: int


@dataclass(frozen=True, slots=True)
class Hold:
    """The provider wants to be left alone."""

    span: timedelta


Change = Open | Close | DelayProbe | ReturnProbe | Hold


class SharedLane:
    def __init__(self, channel: str, concurrency: int) -> None:
        self.channel = channel
        self.pace = Pace(concurrency)
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is a change to write."""
        self._breaker = Breaker()
        # Nothing is claimed before the row has been read once.
        self._facts = LaneFacts(channel, paused=True, opening=0, open=False, probe_in=0, held_for=0)
        self._read_at = tick()
        self._held_until = 0.0
        self._changes: list[Change] = []
        self._asked = False

    # --- before a claim

    @property
    def paused(self) -> bool:
        return self._facts.paused

    @property
    def held_for(self) -> float:
        """Seconds; not above 0 where it is not held."""
        return self._held_until - tick()

    @property
    def open(self) -> bool:
        """Whether nothing but probes is sent."""
        return self._facts.open or self._asked

    @property
    def opening(self) -> int:
        return self._facts.opening

    @property
    def probe_in(self) -> float | None:
        """Seconds until a probe may start. None: not before the row is read again."""
        return self._facts.probe_in - (tick() - self._read_at) if self._facts.open else None

    def delay_probe(self, seconds: float) -> None:
        """A probe was just asked for: the row says when there may be another, and is read again."""
        self._facts, self._read_at = replace(self._facts, probe_in=seconds), tick()

    # --- after an attempt

    def observe(self, held: Held, outcome: Outcome, *, probe: int | None) -> Outcome:
        """The outcome as it is to be believed. `probe` is the opening that it was a probe for."""
        outcome = self._breaker.weigh(outcome)
        if outcome.answer is Answer.THROTTLED:
            self._throttle(min(max(outcome.not_before, MIN_HOLD), MAX_NOT_BEFORE))
        if outcome.answer is Answer.ACCEPTED:
            self.pace.accept()
        if probe is not None:
            self._change(Close(probe) if outcome.answer in ANSWERED else DelayProbe(probe))
        elif not self.open and self._breaker.trips(held.notification_id, outcome.answer):
            self._asked = True
            self._breaker.reset()
            self._change(Open(outcome.code or "none"))
        return outcome

    def return_probe(self, opening: int) -> None:
        self._change(ReturnProbe(opening))

    # --- for the heartbeat

    def take_changes(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes

    def put_back(self, changes: list[Change]) -> None:
        """They could not be written."""
        self._changes = [*changes, *self._changes]

    def apply(self, facts: LaneFacts) -> bool:
        """What was read, after all changes were written. Answers whether it says anything new."""
        before = self.paused, self.open, self.opening
        if facts.open and not self.open:
            self._breaker.reset()
        self._facts, self._read_at = facts, tick()
        self._asked = any(isinstance(change, Open) for change in self._changes)
        if facts.held_for > 0:  # the row's hold ends a moment after ours, and is the same
            self._hold(facts.held_for, known=self.held_for > -MIN_HOLD.total_seconds())
        return before != (self.paused, self.open, self.opening)

    def _throttle(self, span: timedelta) -> None:
        self._hold(span.total_seconds(), known=self.held_for > 0)
        self._change(Hold(span))

    def _hold(self, seconds: float, *, known: bool) -> None:
        if not known:  # once for all that were under way
            self.pace.slow_down()
        self._held_until = max(self._held_until, tick() + seconds)

    def _change(self, change: Change) -> None:
        self._changes.append(change)
        self.on_change()
