"""Accepting: the order in which a request is replayed, refused, or written down.

Each step stands before the next because the later one costs, writes or hides something. There is no line between
promised and recorded: the row is the queue entry, and the answer is given when it is committed.

A caller's request passes `validation` alone, so that a bad one costs nobody else anything. Then it joins a group:
A  one read without locks: is its key known? Who is its subscriber? Is its address suppressed? What are the tenant's
   bounds, what has it used of its limit, and what time is it?
B  pure (`judging`): a known key is a replay, or reused; a new request is judged by the database's clock, the tenant's
   region, its subscriber's address, who must not be sent to, by the limit, so that whoever is refused for anything else
   spends nothing, and last a template is rendered, so that whoever is refused costs no work.
C  one write: what passed goes in where its key is still free. Whoever lost that race is read again, from A.
   Where a tenant has a limit or a quota, it is one transaction that holds the tenants' buckets: A and B again, for
   somebody may have been before us, with what is PENDING counted where a quota seems to be full; then the write, and
   what really went in is charged. Whose bucket somebody holds for long is sent back, and the others' requests go in
   without it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from services.scheduler import destination
from services.scheduler.destination import Pseudonyms
from services.scheduler.judging import (
    Accepted,
    Answer,
    Candidate,
    Facts,
    Key,
    buckets,
    limited_tenants,
    quotas,
    sort_out,
)
from services.scheduler.limits import charges
from services.scheduler.notification import Notification, Request, TemplateUse
from services.scheduler.templates import Rendered, VersionRef
from shared.batching import Contention
from shared.errors import (
    ApiError,
    DatabaseUnavailable,
    ServerOverloaded,
)
from shared.telemetry import metrics

MAX_ROUNDS = 3


class BucketHeld(Contention):
    """Somebody holds a tenant's bucket, and for long."""


class Statements(Protocol):
    async def look_up_keys(self, requests: Sequence[Request]) -> Mapping[Key, Facts]: ...
    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]: ...
    async def lock_buckets(self, tenants: Sequence[str], *, pass_held: bool) -> set[str]:
        """Raises BucketHeld, or passes over what somebody holds."""

    async def count_pending(self, quotas: Mapping[str, int]) -> Mapping[str, int]: ...
    async def charge_buckets(self, empty_at: Mapping[str, datetime], pending: Mapping[str, int]) -> None: ...


class Store(Statements, Protocol):
    async def read_notifications(self, ids: Sequence[tuple[str, UUID]]) -> Mapping[UUID, Notification]: ...
    async def make_buckets(self, tenants: Sequence[str]) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[Statements]: ...


class Renderer(Protocol):
    async def render_all(
        self, wanted: Mapping[Key, tuple[VersionRef, TemplateUse]]
    ) -> Mapping[Key, Rendered | ApiError]: ...


class Accept:
    """Answers groups of requests; `flush` is what the group commit calls."""

    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        *,
        pseudonyms: Pseudonyms,
        max_attempts: int,
        on_due: Callable[[str], None],
        soon: timedelta,
    ) -> None:
        """`on_due` is told the channel of what was written and is due within `soon`."""
        self._store = store
        self._renderer = renderer
        self._pseudonyms = pseudonyms
        self._max_attempts = max_attempts
        self._on_due = on_due
        self._soon = soon

    async def flush(self, group: Sequence[Candidate]) -> list[Answer]:
        """The answers to requests with distinct keys, in order.

        A group whose connection was lost runs once more, and finds what it had committed.
        """
        try:
            return await self._answer(group)
        except DatabaseUnavailable:
            return await self._answer(group)

    async def _answer(self, group: Sequence[Candidate]) -> list[Answer]:
        answers: dict[Key, Answer] = {}
        open_ = {candidate.request.key: candidate for candidate in group}
        for _ in range(MAX_ROUNDS):
            answers |= await self._round(list(open_.values()))
            open_ = {key: candidate for key, candidate in open_.items() if key not in answers}
            if not open_:
                break
        self._wake(answers.values())
        # Somebody inserts and deletes the same keys as fast as we look.
        return [answers.get(candidate.request.key, DatabaseUnavailable()) for candidate in group]

    async def _round(self, group: Sequence[Candidate]) -> dict[Key, Answer]:
        """Answers all but those that lost the race for their key."""
        group, facts = await self._look(group)
        new, known, answers = await self._admit(group, facts)
        if known:
            answers |= await self._find(known, {one.request.key for one in group if one.fate.ours})
        if new:
            limited = limited_tenants(new, facts)
            answers |= await (self._write_limited(new, limited) if limited else self._write(new))
        return answers

    async def _look(self, group: Sequence[Candidate]) -> tuple[Sequence[Candidate], Mapping[Key, Facts]]:
        """Step A. What had no address yet is looked up again with it: it may be suppressed."""
        group = [self._named(candidate) for candidate in group]
        facts = await self._store.look_up_keys([candidate.request for candidate in group])
        completed = [self._completed(candidate, facts[candidate.request.key]) for candidate in group]
        again = [new.request for old, new in zip(group, completed, strict=True) if new is not old]
        return completed, {**facts, **await self._store.look_up_keys(again)} if again else facts

    def _named(self, candidate: Candidate) -> Candidate:
        return _for(destination.named(candidate.request, self._pseudonyms), candidate)

    def _completed(self, candidate: Candidate, facts: Facts) -> Candidate:
        """With its address, where it is new."""
        if facts.known:
            return candidate
        return self._named(_for(destination.completed(candidate.request, facts.region, facts.person), candidate))

    async def _admit(
        self, group: Sequence[Candidate], facts: Mapping[Key, Facts]
    ) -> tuple[list[Candidate], dict[Key, UUID], dict[Key, Answer]]:
        """Step B, with what is new rendered. Whose template fails has taken nobody's place under the limit."""
        failed: dict[Key, Answer] = {}
        while True:
            new, known, answers = sort_out([one for one in group if one.request.key not in failed], facts)
            rendered = await self._render(new, facts)
            group = [_with(rendered.get(one.request.key), one) for one in group]
            wrong = {key: answer for key, answer in rendered.items() if isinstance(answer, ApiError)}
            if not wrong:
                return [_with(rendered.get(one.request.key), one) for one in new], known, answers | failed
            failed |= wrong

    async def _render(self, new: Sequence[Candidate], facts: Mapping[Key, Facts]) -> Mapping[Key, Rendered | ApiError]:
        """Of those that name a template and were not rendered yet."""
        wanted = {
            one.request.key: (template, one.request.template)
            for one in new
            if one.request.template and not one.rendered and (template := facts[one.request.key].template)
        }
        return await self._renderer.render_all(wanted) if wanted else {}

    async def _write(self, new: Sequence[Candidate]) -> dict[Key, Answer]:
        try:
            written = await self._store.insert_notifications(new, self._max_attempts)
        except DatabaseUnavailable:  # it may have been carried out
            _own(new, {one.request.key for one in new})
            raise
        _own(new, written.keys())
        return _accepted(written)

    async def _write_limited(self, new: Sequence[Candidate], limited: Mapping[str, Facts]) -> dict[Key, Answer]:
        if missing := [tenant for tenant, found in limited.items() if found.empty_at is None]:
            await self._store.make_buckets(sorted(missing))
        try:
            return await self._write_charged(new, limited, pass_held=False)
        except BucketHeld:  # by one tenant's all would wait; without that tenant's, the others go in
            return await self._write_charged(new, limited, pass_held=True)

    async def _write_charged(
        self, new: Sequence[Candidate], limited: Mapping[str, Facts], *, pass_held: bool
    ) -> dict[Key, Answer]:
        """Leaves out what somebody else has written meanwhile, and whose limit was set meanwhile."""
        written: Mapping[Key, Notification] = {}
        try:
            async with self._store.transaction() as store:
                held = await store.lock_buckets(sorted(limited), pass_held=pass_held)
                facts = await store.look_up_keys([candidate.request for candidate in new])
                facts = await _counted(store, new, facts, held)
                still_new, _, answers = sort_out(new, facts)
                now_limited = limited_tenants(still_new, facts)
                admitted = [
                    one for one in still_new if one.request.tenant in held or one.request.tenant not in now_limited
                ]
                inserted = await store.insert_notifications(admitted, self._max_attempts) if admitted else {}
                if went_in := Counter(tenant for tenant, _ in inserted if tenant in now_limited):
                    more = {tenant: went_in[tenant] for tenant in quotas(now_limited) if tenant in went_in}
                    await store.charge_buckets(charges(went_in.elements(), buckets(now_limited)), more)
                written = inserted  # also where the answer to the commit is lost
        finally:
            _own(new, written.keys())
        if pass_held:
            stuck = limited.keys() & now_limited.keys() - held
            answers |= {one.request.key: ServerOverloaded() for one in still_new if one.request.tenant in stuck}
        return answers | _accepted(written)

    async def _find(self, known: Mapping[Key, UUID], ours: Set[Key]) -> dict[Key, Answer]:
        ids = [(tenant, notification_id) for (tenant, _), notification_id in known.items()]
        stored = await self._store.read_notifications(ids)
        return {key: Accepted(stored[id_], replayed=key not in ours) for key, id_ in known.items() if id_ in stored}

    def _wake(self, answers: Iterable[Answer]) -> None:
        fresh = [answer.notification for answer in answers if isinstance(answer, Accepted) and not answer.replayed]
        for channel, count in Counter(new.channel for new in fresh).items():
            metrics.ACCEPTED.add(count, channel)
        for channel in {new.channel for new in fresh if new.next_attempt_at - new.created_at <= self._soon}:
            self._on_due(channel)


async def _counted(
    store: Statements, new: Sequence[Candidate], facts: Mapping[Key, Facts], held: Set[str]
) -> Mapping[Key, Facts]:
    """With what is PENDING counted, of those whose quota it is needed for, and whose bucket is held."""
    wanted = Counter(one.request.tenant for one in new if not facts[one.request.key].known)
    theirs = quotas(limited_tenants(new, facts))
    due = {tenant: theirs[tenant].most for tenant in held & theirs.keys() if theirs[tenant].is_unclear(wanted[tenant])}
    if not due:
        return facts
    counts = await store.count_pending(due)
    return {
        (tenant, key): replace(found, pending=counts[tenant], counted_at=found.now) if tenant in counts else found
        for (tenant, key), found in facts.items()
    }


def _with(rendered: Rendered | ApiError | None, candidate: Candidate) -> Candidate:
    return replace(candidate, rendered=rendered) if isinstance(rendered, Rendered) else candidate


def _own(new: Iterable[Candidate], written: Set[Key]) -> None:
    """Of what was not known, this is written, or may be."""
    for one in new:
        one.fate.ours = one.request.key in written


def _for(request: Request, candidate: Candidate) -> Candidate:
    return candidate if request is candidate.request else replace(candidate, request=request)


def _accepted(written: Mapping[Key, Notification]) -> dict[Key, Answer]:
    return {key: Accepted(notification, replayed=False) for key, notification in written.items()}
