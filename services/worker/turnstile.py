"""Who may start now under a recipient's limit, and who stands at the gate. Pure: no I/O, no clock.

At most `limit` notifications of a recipient start in any window, wherever it begins. A slot is held by a notification:
from its last start, for a window, or from the gate's calling it up until it starts. Only starts count, so lateness,
pauses and outages neither break the limit nor change the order; and a wait costs one refunded claim.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

CALLED_WITHOUT_LIMIT = 500  # at a time from one gate, when its limit was taken away
LOOK_AGAIN = timedelta(seconds=15)  # while a slot is kept: its lane may stop, which is seen by a look


@dataclass(frozen=True, slots=True)
class Window:
    """A recipient's slots, as they are while its lock is held."""

    limit: int | None
    """None: there is none any more."""
    length: timedelta
    starts: Mapping[UUID, timedelta]
    """Who started in the window, and how long ago."""
    granted: Set[UUID]
    """Who was called up, and has not started since."""
    queue: bool
    """Somebody waits, on this channel: those of another channel, which may have stopped, hold up nobody here."""
    stalled: Set[UUID] = frozenset()
    """Those of `granted` who cannot start, for their lane has stopped: they are to be called back."""

    @property
    def held(self) -> int:
        return len(self.starts.keys() | self.granted)

    @property
    def free(self) -> int:
        """How many may be called up."""
        return CALLED_WITHOUT_LIMIT if self.limit is None else max(0, self.limit - self.held)


@dataclass(frozen=True, slots=True)
class Plan:
    """Both in order of urgency."""

    start: list[UUID] = field(default_factory=list)
    wait: list[UUID] = field(default_factory=list)
    newcomers: set[UUID] = field(default_factory=set)
    """Those of `start` who take a slot that nobody held."""


def admit(window: Window, claimed: Iterable[UUID], taken: int = 0) -> Plan:
    """`claimed` in order of urgency. Whoever holds a slot starts; others only while nobody stands before them.

    `taken` are slots that were given on other channels since the window was read.
    """
    plan = Plan()
    for notification in claimed:
        if window.limit is None or notification in window.starts or notification in window.granted:
            plan.start.append(notification)
        elif not (window.queue or plan.wait) and window.held + taken + len(plan.newcomers) < window.limit:
            plan.start.append(notification)
            plan.newcomers.add(notification)
        else:
            plan.wait.append(notification)
    return plan


def opens_in(window: Window, more: int) -> timedelta:
    """Until the next slot may come free, when `more` are taken: never too late, and too early costs a look."""
    if window.limit is None:
        return timedelta()
    leavers = window.held + more - window.limit + 1
    if leavers <= 0:
        return timedelta()
    longest = min(window.length, LOOK_AGAIN) if window.granted else window.length
    ages = sorted((age for id_, age in window.starts.items() if id_ not in window.granted), reverse=True)
    if leavers > len(ages):
        return longest  # somebody has to start first
    return min(window.length - ages[leavers - 1], longest)
