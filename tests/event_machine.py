"""A machine that drives the statements of all services, and looks after each step whether they agree with the model."""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.scheduler import changes
from services.scheduler.changes import By, Wish
from services.scheduler.judging import candidate
from services.scheduler.notification import Request
from services.worker.claim import Claim, Recipient
from services.worker.lane import LOW_FIRST, URGENT_FIRST
from services.worker.outcome import Ended, Later, Sent, Verdict, content_erased, expired, judge, suppressed, unstarted
from services.worker.providers import Answer, Outcome
from services.worker.store import Record
from services.worker.turnstile import Window
from shared import suppression
from shared.errors import NoLongerSendable, RequestInvalid, StatusConflict
from tests.event_model import CAP, LEASE, THROTTLED_FOR, Model, One
from tests.event_services import BACKOFF, HOUR, NONE, Connection, Services

MISSED = "the events are not those of the ends"

TENANT = "default"
BY = By("key:0123456789ab", "a reason")
ADDRESSES = ("a@example.com", "b@example.com")
TABLES = ("notifications", "notification_contents", "notification_history", "webhook_events", "status_deltas")

ROWS = (
    "SELECT id, status, failure_reason, attempt_count, max_attempts, redrive_count, expiries, waiting, maybe_delivered,"
    " reconciliation_granted FROM notifyqueue.notifications"
)
EVENTS = "SELECT notification_id, status, redrive_count, attempt_count, failure_reason FROM notifyqueue.webhook_events"
COUNTS = "SELECT status, sum(count)::int AS count FROM notifyqueue.status_deltas GROUP BY status"

Wished = tuple[int, bool, bool, int, int | None]
"""A key, to the second address, whether at most once, due in so many hours, with so many to live."""

hours = st.sampled_from([0, 1, 3])
wishes = st.tuples(
    st.integers(0, 19),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([None, None, None, 2, 6]),
)
answers = st.sampled_from([Answer.ACCEPTED, *Answer])
caps = st.sampled_from([1, CAP])
picks = st.integers(0, 30)
groups = st.lists(picks, min_size=1, max_size=5)


Step = tuple[str, dict[str, Any]]
STEPS: list[st.SearchStrategy[Step]] = []


def step(
    *, weight: int = 1, **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One of the ways in which `Events` goes on, with what it is given.

    Rules of their own would be left out at random, most of them in most runs, and few ways would be gone to their end.
    """

    def register(method: Callable[..., None]) -> Callable[..., None]:
        name = st.just(method.__name__)
        STEPS.extend(st.tuples(name, st.fixed_dictionaries(arguments)) for _ in range(weight))
        return method

    return register


class Events(RuleBasedStateMachine):
    """Every way through the statuses, by the statements that there are."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        self.run = services.run
        self.model = Model()
        self.claims: list[Claim] = []
        """All that were ever answered, so that late workers come back with tokens that are not theirs any more."""

    @initialize(wishes=st.lists(wishes, min_size=6, max_size=9), cap=caps)
    def begin(self, wishes: list[Wished], cap: int) -> None:
        self.owner("; ".join(f"DELETE FROM notifyqueue.{table}" for table in (*TABLES, "suppressions")))
        self.services.load_dice()
        self.accept(wishes, cap)

    def accept(self, wishes: Sequence[Wished], cap: int) -> None:
        known = {key: (to, once, delay, ttl) for key, to, once, delay, ttl in wishes}
        requests = [
            Request(
                *(TENANT, f"{key}", "EMAIL", ADDRESSES[to], {"text": "Hello"}, 1 + key % 3, HOUR * delay),
                *(None if ttl is None else HOUR * ttl, once, "", None, {}),
            )
            for key, (to, once, delay, ttl) in known.items()
        ]
        written = self.run(self.services.scheduler.insert_notifications(list(map(candidate, requests)), cap))
        for (_, key), new in written.items():
            to, once, delay, ttl = known[int(key)]
            due = self.model.now + delay
            self.model.all[new.id] = One(ADDRESSES[to], once, due, None if ttl is None else due + ttl, cap)

    # --- callers

    @step(weight=2, wishes=st.lists(wishes, min_size=1, max_size=4), cap=caps)
    def schedule(self, wishes: list[Wished], cap: int) -> None:
        """Under some keys there is one already: of those nothing is written."""
        self.accept(wishes, cap)

    @step(pick=picks)
    def cancel(self, pick: int) -> None:
        id_ = self.pick(pick)
        again = self.model.all[id_].status == "CANCELLED"
        told = self.told(changes.cancel(self.services.scheduler, TENANT, id_, BY))
        assert told == ("" if self.model.cancel(id_) or again else "StatusConflict")

    @step(group=st.lists(picks, min_size=2, max_size=2))
    def cancel_many(self, group: list[int]) -> None:
        ids = {self.pick(pick) for pick in group}
        ended = self.run(self.services.scheduler.cancel_notifications(TENANT, list(ids), BY.actor, BY.note))
        assert ended.count == sum(self.model.cancel(id_) for id_ in ids)

    @step(pick=picks, delay=hours, priority=st.sampled_from([None, 1, 3]))
    def reschedule(self, pick: int, delay: int, priority: int | None) -> None:
        id_ = self.pick(pick)
        told = self.told(self.services.rescheduling.reschedule(TENANT, id_, Wish(HOUR * delay, priority), BY))
        assert (told == "") is self.model.reschedule(id_, delay)

    @step(weight=4, pick=picks)
    def redrive(self, pick: int) -> None:
        """One that died, if any has."""
        died = [id_ for id_, one in self.model.all.items() if one.status in ("FAILED", "DEAD_LETTERED")]
        id_ = died[pick % len(died)] if died else self.pick(pick)
        one = self.model.all[id_]
        waits = one.status == "PENDING" and one.redrives > 0
        told = self.told(self.services.redriving.redrive(TENANT, id_, BY))
        assert (told == "") is (self.model.redrive(id_) or waits)

    @step(to=st.booleans())
    def suppress(self, to: bool) -> None:
        address = ADDRESSES[to]
        if address in self.model.suppressed:
            self.owner("DELETE FROM notifyqueue.suppressions WHERE address = $1", address)
        else:
            self.owner(
                "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source)"
                " VALUES ('default', 'EMAIL', $1, 'OPTED_OUT')",
                address,
            )
        self.model.suppressed ^= {address}

    @step(pick=picks)
    def erase(self, pick: int) -> None:
        id_ = self.pick(pick)
        self.owner("DELETE FROM notifyqueue.notification_contents WHERE notification_id = $1", id_)
        self.model.all[id_].erased = True

    # --- workers

    @step(
        weight=2,
        limit=st.sampled_from([1, 2, 64, 64]),
        low_first=st.booleans(),
        suspects=st.booleans(),
        answered=st.integers(0, 5),
    )
    def claim(self, limit: int, low_first: bool, suspects: bool, answered: int) -> None:
        token, worker_id = uuid4(), uuid4()
        claims = self.run(
            self.services.worker.claim_due(
                "EMAIL",
                limit=limit,
                classes=LOW_FIRST if low_first else URGENT_FIRST,
                due_for=NONE,
                token=token,
                worker_id=worker_id,
                lease=HOUR * LEASE,
                take_suspect=suspects,
            )
        )
        healthy = self.model.claimable() - self.model.suspects()
        suspected = self.model.claimable() & self.model.suspects()
        ids = self.ids(claims)
        assert ids <= healthy | suspected
        assert len(ids & suspected) == min(len(suspected), suspects)
        assert len(ids) == min(limit, len(healthy) + len(ids & suspected))
        if answered:
            self.take(claims, token)
        else:  # the answer was cut off
            assert self.run(self.services.worker.release_token(token, worker_id)) == len(ids)

    @step()
    def claim_probe(self) -> None:
        token = uuid4()
        claims = self.run(self.services.worker.claim_probe("EMAIL", token=token, worker_id=uuid4(), lease=HOUR * LEASE))
        healthy = self.model.claimable() - self.model.suspects()
        assert self.ids(claims) <= healthy
        assert len(claims) == min(1, len(healthy))
        self.take(claims, token)

    @step(weight=7, group=groups, answers=st.lists(answers, min_size=5, max_size=5), given_up=st.booleans())
    def deliver(self, group: list[int], answers: list[Answer], given_up: bool) -> None:
        claims = self.group(group)
        self.start([claim for claim in claims if claim.at_most_once])
        ours = self.ours(claims)
        attempts = list(zip(claims, answers, strict=False))
        records = [Record(claim, _verdict(self.aged(claim), answer, given_up=given_up)) for claim, answer in attempts]
        for claim, answer in attempts:
            if claim.notification_id in ours:
                self.model.deliver(claim.notification_id, answer, given_up=given_up)
        assert self.record(records) == ours
        # Of two addresses both would soon take nothing, and nothing more would happen.
        self.owner("DELETE FROM notifyqueue.suppressions WHERE source = 'BOUNCED'")

    @step(group=groups)
    def give_back(self, group: list[int]) -> None:
        """As a drain does; what is overdue ends."""
        claims = self.group(group)
        ours = self.ours(claims)
        records = [Record(claim, unstarted(self.aged(claim))) for claim in claims]
        for id_ in ours:
            self.model.give_back(id_)
        assert self.record(records) == ours

    @step(group=groups)
    def wait(self, group: list[int]) -> None:
        claims = self.group(group)
        ours = self.ours(claims)

        async def put_to_wait() -> set[UUID]:
            async with self.services.turnstile.turn() as turn:
                held = await turn.hold_claims(claims)
                await turn.wait_at_gates(
                    {one.notification_id: one.recipient for one in claims if one.notification_id in held}
                )
            return set(held)

        assert self.run(put_to_wait()) == ours
        for id_ in ours:
            self.model.wait(id_)

    @step(group=groups)
    def renew(self, group: list[int]) -> None:
        claims = self.group(group)
        ours = self.ours(claims)
        assert self.run(self.services.worker.renew_leases(claims, HOUR * LEASE)) == self.ids(claims) - ours
        for id_ in ours:
            self.model.all[id_].lease_ends = self.model.now + LEASE

    @step(weight=3, group=groups, started=st.booleans(), swept=st.booleans())
    def crash(self, group: list[int], started: bool, swept: bool) -> None:
        """Whoever holds them is gone, or stands still: it may come back with its claims."""
        claims = self.group(group)
        if started:
            self.start(claims)
        ours = self.ours(claims)
        self.owner("UPDATE notifyqueue.notifications SET lease_expires_at = now() WHERE id = ANY ($1)", list(ours))
        for id_ in ours:
            self.model.all[id_].lease_ends = self.model.now
        if swept:
            self.sweep()

    @step(to=st.booleans(), limit=st.sampled_from([None, 100]))
    def call_up(self, to: bool, limit: int | None) -> None:
        recipient = Recipient(TENANT, f"EMAIL {ADDRESSES[to]}")
        window = Window(limit=limit, length=HOUR, starts={}, granted=frozenset(), queue=True)

        async def open_gate() -> int:
            async with self.services.turnstile.turn() as turn:
                return (await turn.grant_slots({recipient: window})).total()

        assert self.run(open_gate()) == self.model.call_up(ADDRESSES[to])

    @step(weight=2)
    def sweep(self) -> None:
        self.run(self.services.recovery.sweep())
        self.model.sweep()

    @step(weight=3, by=st.sampled_from([1, 1, 2]))
    def clock(self, by: int) -> None:
        """Hours pass: all that is stored lies further back, also of what has ended."""
        names = ("due_at", "next_attempt_at", "expire_at", "lease_expires_at", "started_at", "finished_at")
        moves = ", ".join(f"{name} = {name} - $1::interval" for name in names)
        self.owner(f"UPDATE notifyqueue.notifications SET {moves}", HOUR * by)
        self.model.now += by

    # --- what holds all the time

    @rule(step=st.deferred(lambda: st.one_of(STEPS)))
    def go_on(self, step: Step) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    @invariant()
    def the_statuses_and_the_events_are_those_of_the_model(self) -> None:
        rows, events = self.run(_look(self.services.owner))
        assert rows == {id_: one.row for id_, one in self.model.all.items()}
        assert events == Counter(self.model.events), MISSED

    def teardown(self) -> None:
        counts = self.run(self.services.owner.fetch(COUNTS))
        assert {row["status"]: row["count"] for row in counts} == Counter(
            status for _, status, *_ in self.model.events
        ), MISSED

    # --- for the steps

    def start(self, claims: Sequence[Claim]) -> None:
        ours = self.ours(claims)
        if not claims:
            return
        assert self.run(self.services.worker.start_attempts(claims, HOUR * LEASE)) == ours
        for id_ in ours:
            one = self.model.all[id_]
            one.started, one.lease_ends = True, self.model.now + LEASE

    def pick(self, pick: int) -> UUID:
        return list(self.model.all)[pick % len(self.model.all)]

    def group(self, group: list[int]) -> list[Claim]:
        """Of what is held, which is all that is due where nothing was; and of what was lost, last to another."""
        if not any(map(self.holds, self.claims)):
            self.claim(64, False, True, 1)
        held = [claim for claim in self.claims if self.holds(claim)]
        lost = [claim for claim in self.claims if not self.holds(claim)]
        known = held + sorted(lost, key=self.is_anothers)[-2:]
        if not known:
            return []
        return list({claim.notification_id: claim for claim in (known[pick % len(known)] for pick in group)}.values())

    def holds(self, claim: Claim) -> bool:
        return self.model.holds(claim.notification_id, claim.claim_token)

    def is_anothers(self, claim: Claim) -> bool:
        return self.model.all[claim.notification_id].status == "PROCESSING"

    def ours(self, claims: Sequence[Claim]) -> set[UUID]:
        return self.ids([claim for claim in claims if self.holds(claim)])

    def ids(self, claims: Sequence[Claim]) -> set[UUID]:
        return {claim.notification_id for claim in claims}

    def take(self, claims: Sequence[Claim], token: UUID) -> None:
        self.model.claim(self.ids(claims), token)
        self.claims += sorted(claims, key=lambda claim: claim.notification_id)

    def aged(self, claim: Claim) -> Claim:
        expires = self.model.all[claim.notification_id].expires
        return replace(claim, time_left=None if expires is None else HOUR * (expires - self.model.now))

    def record(self, records: Sequence[Record[Verdict]]) -> set[UUID]:
        store = self.services.worker
        kinds = ((Sent, store.mark_sent), (Ended, store.end_unsent), (Later, store.retry_later))
        written: set[UUID] = set()
        for kind, write in kinds:
            some: Any = [record for record in records if isinstance(record.verdict, kind)]
            if some:
                written |= self.run(write(some))
        return written

    def owner(self, statement: str, *args: object) -> None:
        self.run(self.services.owner.execute(statement, *args))

    def told(self, call: Coroutine[Any, Any, object]) -> str:
        """The name of the refusal; empty where there was none."""
        try:
            self.run(call)
        except (StatusConflict, NoLongerSendable, RequestInvalid) as error:
            return type(error).__name__
        return ""


def _verdict(claim: Claim, answer: Answer, *, given_up: bool) -> Verdict:
    """As services/worker/delivery.py comes to it."""
    if reason := suppression.reason(claim.suppressed_by):
        return suppressed(claim, reason)
    if claim.content is None:
        return content_erased()
    if claim.overdue:
        return expired(claim)
    not_before = HOUR * THROTTLED_FOR if answer is Answer.THROTTLED else NONE
    return judge(claim, Outcome(answer, not_before=not_before), BACKOFF, given_up=given_up)


async def _look(
    owner: Connection,
) -> tuple[dict[UUID, tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    rows, events = await owner.fetch(ROWS), await owner.fetch(EVENTS)
    return {row["id"]: tuple(row)[1:] for row in rows}, Counter(map(tuple, events))
