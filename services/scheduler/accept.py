"""Accepting: the order in which a request is replayed, refused, or written down.

Each step stands before the next because the later one costs, writes or hides something. There is no line between
promised and recorded: the row is the queue entry, and the answer is given when it is committed.

A caller's request passes `validation` alone, so that a bad one costs nobody else anything. Then it joins a group:
A  one read without locks: is its key known? What are the tenant's bounds, and what time is it?
B  pure: a known key is a replay, or reused; a new request is judged by the database's clock and the tenant's region.
C  one write: what passed goes in where its key is still free. Whoever lost that race is read again, from A.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from services.scheduler.fingerprint import fingerprint
from services.scheduler.notification import Notification, Request
from services.scheduler.phones import in_region, is_national
from services.scheduler.times import due_time, judge_due
from shared.errors import ApiError, DatabaseUnavailable, IdempotencyKeyReused, RequestInvalid, Violation

Key = tuple[str, str]  # tenant, idempotency key

MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Known:
    """The notification that already stands under a key."""

    notification_id: UUID
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What A found for one request."""

    known: Known | None
    now: datetime
    horizon: timedelta
    past_grace: timedelta
    region: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that may be written down."""

    request: Request
    fingerprint: bytes

    @property
    def size(self) -> int:
        """Bytes of what may be long, of which a group carries a bounded number."""
        return len(f"{self.request.address}{self.request.content}{self.request.labels}".encode())


@dataclass(frozen=True, slots=True)
class Accepted:
    notification: Notification
    replayed: bool


Answer = Accepted | ApiError


class Store(Protocol):
    async def look_up_keys(self, keys: Sequence[Key]) -> Mapping[Key, Facts]: ...
    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]: ...
    async def read_notifications(self, ids: Sequence[tuple[str, UUID]]) -> Mapping[UUID, Notification]: ...


class Accept:
    """Answers groups of requests; `flush` is what the group commit calls."""

    def __init__(self, store: Store, *, max_attempts: int, on_due: Callable[[str], None], soon: timedelta) -> None:
        """`on_due` is told the channel of what was written and is due within `soon`."""
        self._store = store
        self._max_attempts = max_attempts
        self._on_due = on_due
        self._soon = soon

    async def flush(self, group: Sequence[Candidate]) -> list[Answer]:
        """The answers to requests with distinct keys, in order.

        A group whose connection was lost runs once more, and finds what it had committed.
        """
        unsure: set[Key] = set()
        try:
            return await self._answer(group, unsure)
        except DatabaseUnavailable:
            return await self._answer(group, unsure)

    async def _answer(self, group: Sequence[Candidate], unsure: set[Key]) -> list[Answer]:
        """`unsure` gathers what was sent to be inserted and not answered: found later, it is ours, and no replay."""
        answers: dict[Key, Answer] = {}
        open_ = {candidate.request.key: candidate for candidate in group}
        for _ in range(MAX_ROUNDS):
            answers |= await self._round(list(open_.values()), unsure)
            open_ = {key: candidate for key, candidate in open_.items() if key not in answers}
            if not open_:
                break
        self._wake(answers.values())
        # Somebody inserts and deletes the same keys as fast as we look.
        return [answers.get(candidate.request.key, DatabaseUnavailable()) for candidate in group]

    async def _round(self, group: Sequence[Candidate], unsure: set[Key]) -> dict[Key, Answer]:
        """Answers all but those that lost the race for their key."""
        facts = await self._store.look_up_keys([candidate.request.key for candidate in group])
        new, known, answers = _sort_out(group, facts)
        if known:
            answers |= await self._find(known, unsure)
        if new:
            keys = {candidate.request.key for candidate in new}
            unsure |= keys
            written = await self._store.insert_notifications(new, self._max_attempts)
            unsure -= keys
            answers |= {key: Accepted(notification, replayed=False) for key, notification in written.items()}
        return answers

    async def _find(self, known: Mapping[Key, UUID], unsure: set[Key]) -> dict[Key, Answer]:
        ids = [(tenant, notification_id) for (tenant, _), notification_id in known.items()]
        stored = await self._store.read_notifications(ids)
        return {key: Accepted(stored[id_], replayed=key not in unsure) for key, id_ in known.items() if id_ in stored}

    def _wake(self, answers: Iterable[Answer]) -> None:
        fresh = [answer.notification for answer in answers if isinstance(answer, Accepted) and not answer.replayed]
        for channel in {new.channel for new in fresh if new.next_attempt_at - new.created_at <= self._soon}:
            self._on_due(channel)


def candidate(request: Request) -> Candidate:
    return Candidate(request, fingerprint(request))


def _sort_out(
    group: Sequence[Candidate], facts: Mapping[Key, Facts]
) -> tuple[list[Candidate], dict[Key, UUID], dict[Key, Answer]]:
    """Step B: what is to be written, what is a replay, and who is refused."""
    new: list[Candidate] = []
    replays: dict[Key, UUID] = {}
    refused: dict[Key, Answer] = {}
    for candidate in group:
        key = candidate.request.key
        known = facts[key].known
        if known is None:
            judged = _judge(candidate, facts[key])
            if isinstance(judged, Candidate):
                new.append(judged)
            else:
                refused[key] = judged
        elif known.fingerprint == candidate.fingerprint:
            replays[key] = known.notification_id
        else:
            refused[key] = IdempotencyKeyReused(known.notification_id)
    return new, replays, refused


def _judge(candidate: Candidate, facts: Facts) -> Candidate | RequestInvalid:
    """The candidate as it may be written, or why not."""
    violations = judge_times(candidate.request, facts)
    request = candidate.request
    if is_national(request.channel, request.address):
        try:
            request = replace(request, address=in_region(request.address, facts.region))
        except ValueError as error:
            violations = [Violation("address", str(error)), *violations]
    return RequestInvalid(violations) if violations else replace(candidate, request=request)


def judge_times(request: Request, facts: Facts) -> list[Violation]:
    """Whether a new request's times make sense now, by the database's clock and the tenant's bounds."""
    found = judge_due(request.due, facts)
    if request.expiry is not None and not found:
        found += _judge_expiry(request.expiry, due_time(request.due, facts.now), facts.now)
    return found


def _judge_expiry(expiry: datetime | timedelta, due: datetime, now: datetime) -> list[Violation]:
    expire = due + expiry if isinstance(expiry, timedelta) else expiry
    name = "ttl" if isinstance(expiry, timedelta) else "expire_time"
    if expire <= due:
        return [Violation(name, "must be after it is due")]
    if expire <= now:
        return [Violation(name, "has passed already")]
    return []
