"""What a provider's answers in a row say about the provider. One worker's own view; pure: no I/O, no clock."""

from collections import deque
from dataclasses import replace
from uuid import UUID

from services.worker.providers import Answer, Outcome

FAILURES = 5  # in a row
FAILED_NOTIFICATIONS = 3  # among them: one or two may be at fault themselves
MISCONFIGURED_NOTIFICATIONS = 3

WINDOW = 100  # outcomes
MAX_DEAD_ADDRESSES = WINDOW // 5


class Breaker:
    """Counts until the provider must be given up for a while, whatever the notification."""

    def __init__(self) -> None:
        self._failing: deque[UUID] = deque(maxlen=WINDOW)
        self._misconfigured: set[UUID] = set()
        self._dead_addresses: deque[bool] = deque(maxlen=WINDOW)

    def weigh(self, outcome: Outcome) -> Outcome:
        """The outcome as it is to be believed: nobody's list is a fifth dead addresses, so the fault is ours."""
        dead = outcome.answer is Answer.PERMANENT_ADDRESS and not outcome.opted_out  # somebody lives there
        self._dead_addresses.append(dead)
        many = len(self._dead_addresses) == WINDOW and sum(self._dead_addresses) > MAX_DEAD_ADDRESSES
        if many and dead:
            return replace(outcome, answer=Answer.MISCONFIGURED)
        return outcome

    def trips(self, notification_id: UUID, answer: Answer) -> bool:
        """Counts an answer, and says whether it is one too many."""
        match answer:
            case Answer.ACCEPTED:
                self.reset()
            case Answer.PERMANENT_MESSAGE | Answer.PERMANENT_ADDRESS:
                self._failing.clear()
            case Answer.TRANSIENT | Answer.UNKNOWN:
                self._failing.append(notification_id)
            case Answer.MISCONFIGURED:
                self._misconfigured.add(notification_id)
        down = len(self._failing) >= FAILURES and len(set(self._failing)) >= FAILED_NOTIFICATIONS
        return down or len(self._misconfigured) >= MISCONFIGURED_NOTIFICATIONS

    def reset(self) -> None:
        self._failing.clear()
        self._misconfigured.clear()


class Pace:
    """How many a lane runs at once: halved when its provider says that too much is coming, regained one by one."""

    def __init__(self, ceiling: int) -> None:
        self.limit = ceiling
        self._ceiling = ceiling
        self._accepted = 0

    def slow_down(self) -> None:
        self.limit = max(1, self.limit // 2)
        self._accepted = 0

    def accept(self) -> None:
        """As TCP does it (RFC 5681, 3.1): one more after as many as may run were accepted."""
        if self.limit < self._ceiling:
            self._accepted += 1
            if self._accepted >= self.limit:
                self.limit += 1
                self._accepted = 0
