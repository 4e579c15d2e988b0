"""What becomes of notifications, as a model that knows nothing of a database: statuses, attempts, and an event per end.

It counts in whole hours, so that the moments which a test takes decide nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from services.worker.providers import Answer

CAP = 2
"""Attempts after a redrive."""
LEASE = 1
THROTTLED_FOR = 3
ENDS = frozenset({"SENT", "FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED"})

Event = tuple[UUID, str, int, int, str | None]
"""Of which notification, its status, and how often it had been redriven and tried; and why it ended so."""
Row = tuple[str, str | None, int, int, int, int, bool, bool, bool]


def backoff(attempt: int) -> int:
    return 1 if attempt <= 1 else 2


@dataclass(slots=True)
class One:
    """A notification."""

    address: str
    at_most_once: bool
    next_attempt: int
    expires: int | None
    cap: int
    status: str = "PENDING"
    reason: str | None = None
    attempts: int = 0
    redrives: int = 0
    expiries: int = 0
    waiting: bool = False
    maybe_delivered: bool = False
    reconciled: bool = False
    erased: bool = False
    started: bool = False
    token: UUID | None = None
    lease_ends: int = 0
    obstacle: str | None = None
    """What its claim found that keeps it from being sent."""

    @property
    def row(self) -> Row:
        return (
            self.status,
            self.reason,
            self.attempts,
            self.cap,
            self.redrives,
            self.expiries,
            self.waiting,
            self.maybe_delivered,
            self.reconciled,
        )


@dataclass(slots=True)
class Model:
    now: int = 0
    all: dict[UUID, One] = field(default_factory=dict)
    suppressed: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)

    def overdue(self, one: One) -> bool:
        return one.expires is not None and one.expires <= self.now

    def claimable(self) -> set[UUID]:
        return {
            id_
            for id_, one in self.all.items()
            if one.status == "PENDING" and not one.waiting and one.next_attempt <= self.now
        }

    def suspects(self) -> set[UUID]:
        return {id_ for id_, one in self.all.items() if one.expiries >= 2}

    def holds(self, id_: UUID, token: UUID) -> bool:
        return self.all[id_].token == token

    # --- what workers do

    def claim(self, ids: Iterable[UUID], token: UUID) -> None:
        for one in map(self.all.__getitem__, ids):
            one.status, one.token, one.lease_ends, one.started = "PROCESSING", token, self.now + LEASE, False
            one.attempts += 1
            one.obstacle = "OPTED_OUT" if one.address in self.suppressed else "CONTENT_ERASED" if one.erased else None

    def go_back(self, one: One, next_attempt: int, *, refunded: bool) -> None:
        one.status, one.token, one.next_attempt, one.started = "PENDING", None, next_attempt, False
        one.attempts -= refunded

    def deliver(self, id_: UUID, answer: Answer, *, given_up: bool) -> None:
        """Its holder ends it before any call, or makes one that is answered like this."""
        one = self.all[id_]
        if one.obstacle or self.overdue(one):
            one.attempts -= 1
            if one.obstacle == "CONTENT_ERASED":
                self._end(id_, "FAILED", "CONTENT_ERASED")
            else:
                self._end_unsent(id_, "SUPPRESSED" if one.obstacle else "EXPIRED", one.obstacle)
            return
        one.started = True
        match answer:
            case Answer.ACCEPTED:
                self._end(id_, "SENT")
            case Answer.PERMANENT_MESSAGE:
                self._end(id_, "FAILED", "MESSAGE_REJECTED")
            case Answer.PERMANENT_ADDRESS:
                self._end(id_, "FAILED", "ADDRESS_REJECTED")
            case Answer.UNKNOWN:
                self._lose(id_, "ATTEMPTS_EXHAUSTED")
            case Answer.THROTTLED:
                self._fail(id_, max(THROTTLED_FOR, backoff(one.attempts)), refunded=True)
            case Answer.TRANSIENT | Answer.MISCONFIGURED:
                self._fail(id_, backoff(one.attempts), refunded=given_up)

    def give_back(self, id_: UUID) -> None:
        one = self.all[id_]
        if self.overdue(one):
            one.attempts -= 1
            self._end_unsent(id_, "EXPIRED")
        else:
            self.go_back(one, self.now, refunded=True)

    def wait(self, id_: UUID) -> None:
        one = self.all[id_]
        self.go_back(one, one.next_attempt, refunded=True)
        one.waiting = True

    def call_up(self, address: str) -> int:
        called = [one for one in self.all.values() if one.waiting and one.address == address]
        for one in called:
            one.waiting, one.next_attempt = False, min(one.next_attempt, self.now)
        return len(called)

    def sweep(self) -> None:
        for id_, one in self.all.items():
            if one.status == "PROCESSING" and one.lease_ends <= self.now:
                one.expiries += 1
                if not one.at_most_once or one.started:
                    self._lose(id_, "WORKER_LOST")
                else:
                    self.give_back(id_)
        for id_, one in self.all.items():
            if one.status == "PENDING" and self.overdue(one):
                self._end_unsent(id_, "EXPIRED")

    def _lose(self, id_: UUID, exhausted: str) -> None:
        """It may have been delivered."""
        one = self.all[id_]
        reconciles = one.attempts >= one.cap and not one.reconciled
        next_attempt = self.now + backoff(one.attempts)
        if one.at_most_once:
            self._end(id_, "FAILED", "OUTCOME_UNKNOWN")
        elif one.attempts >= one.cap and not reconciles:
            self._end(id_, "DEAD_LETTERED", exhausted)
        elif one.expires is not None and one.expires <= next_attempt:
            self._end(id_, "FAILED", "OUTCOME_UNKNOWN")
        else:
            one.maybe_delivered = True
            one.reconciled |= reconciles
            one.cap += reconciles
            self.go_back(one, next_attempt, refunded=False)

    def _fail(self, id_: UUID, delay: int, *, refunded: bool) -> None:
        """It was not delivered."""
        one = self.all[id_]
        if one.attempts >= one.cap and not refunded:
            self._end(id_, "DEAD_LETTERED", "ATTEMPTS_EXHAUSTED")
        elif one.expires is not None and one.expires <= self.now + delay:
            self._end_unsent(id_, "EXPIRED")
        else:
            self.go_back(one, self.now + delay, refunded=refunded)

    # --- what callers and operators do

    def cancel(self, id_: UUID) -> bool:
        if self.all[id_].status != "PENDING":
            return False
        self._end(id_, "CANCELLED")
        return True

    def redrive(self, id_: UUID) -> bool:
        one = self.all[id_]
        if one.status not in ("FAILED", "DEAD_LETTERED") or self.overdue(one) or one.erased:
            return False
        one.maybe_delivered |= one.reason == "OUTCOME_UNKNOWN"
        one.status, one.reason, one.next_attempt, one.started = "PENDING", None, self.now, False
        one.attempts, one.cap, one.expiries, one.reconciled = 0, CAP, 0, False
        one.redrives += 1
        return True

    def reschedule(self, id_: UUID, delay: int) -> bool:
        one = self.all[id_]
        due = self.now + delay
        if one.status != "PENDING" or (one.expires is not None and one.expires <= due):
            return False
        one.next_attempt, one.waiting = due, False
        return True

    # --- ends

    def _end_unsent(self, id_: UUID, status: str, reason: str | None = None) -> None:
        """Of what may have been delivered nobody knows whether it was."""
        if self.all[id_].maybe_delivered:
            status, reason = "FAILED", "OUTCOME_UNKNOWN"
        self._end(id_, status, reason)

    def _end(self, id_: UUID, status: str, reason: str | None = None) -> None:
        """The one place where an event is made."""
        one = self.all[id_]
        one.status, one.reason, one.token, one.waiting = status, reason, None, False
        self.events.append((id_, status, one.redrives, one.attempts, reason))
