"""Accepting: what is replayed, refused and written, and in how many rounds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from uuid import UUID

import pytest

from services.scheduler.accept import Accept, BucketHeld
from services.scheduler.judging import Accepted, Answer, Candidate, Facts, Key, Known, candidate
from services.scheduler.limits import Limit
from services.scheduler.notification import Notification, Request, TemplateUse
from services.scheduler.times import judge_times
from shared.batching import Contention, GroupCommit
from shared.errors import (
    AddressSuppressed,
    ApiError,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    QuotaExceeded,
    RecipientOptedOut,
    RequestInvalid,
    ServerOverloaded,
    TenantLimitExceeded,
    Violation,
)
from tests.recipients import PSEUDONYMS
from tests.templates import NoTemplates
from tests.waiting import settled

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
SOON = timedelta(seconds=5)

REQUEST = Request(
    tenant="default",
    idempotency_key="a",
    channel="EMAIL",
    address="someone@example.com",
    content={"subject": "Hello", "text": "How are you?"},
    priority=2,
    due=None,
    expiry=None,
    at_most_once=False,
    category="",
    reference=None,
    labels={},
)


def asked(key: str = "a", **fields: object) -> Candidate:
    return candidate(replace(REQUEST, idempotency_key=key, **fields))  # type: ignore[arg-type]


def texted(key: str = "a", address: str = "+447700900123", **fields: object) -> Candidate:
    return asked(key, channel="SMS", address=address, content={"text": "Hello"}, **fields)


@dataclass
class FakeStore:
    """A table of notifications, and what somebody else does to it between two statements."""

    now: datetime = NOW
    region: str | None = None
    suppressed: dict[str, Sequence[str]] = field(default_factory=dict)
    """By address, the sources."""
    limits: dict[str, Limit] = field(default_factory=dict)
    """By tenant."""
    buckets: dict[str, datetime] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    """Likewise."""
    pending: dict[str, tuple[int, datetime | None]] = field(default_factory=dict)
    """What the bucket says, and when it was counted."""
    ended: int = 0
    """Of the rows so many are not PENDING."""
    rows: dict[Key, tuple[Known, Notification]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    """Whose buckets somebody else holds."""
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens before a statement of this name, each time."""
    calls: list[str] = field(default_factory=list)

    def put(self, new: Candidate) -> Notification:
        due = self.due(new.request)
        stored = Notification(
            id=UUID(int=len(self.rows) + 1),
            idempotency_key=new.request.idempotency_key,
            channel=new.request.channel,
            address=new.request.address,
            priority=new.request.priority,
            status="PENDING",
            due_at=due,
            next_attempt_at=max(due, self.now),
            expire_at=None,
            max_attempts=5,
            at_most_once=False,
            category="",
            reference=None,
            labels={},
            created_at=self.now,
        )
        self.rows[new.request.key] = Known(stored.id, new.fingerprint), stored
        return stored

    def due(self, request: Request) -> datetime:
        return self.now + request.due if isinstance(request.due, timedelta) else request.due or self.now

    def expired(self, request: Request) -> bool:
        return isinstance(request.expiry, datetime) and request.expiry <= self.due(request)

    def begin(self, statement: str) -> None:
        self.calls.append(statement)
        self.before.get(statement, lambda: None)()

    async def look_up_keys(self, requests: Sequence[Request]) -> Mapping[Key, Facts]:
        self.begin("look_up_keys")
        return {request.key: self.facts(request) for request in requests}

    def facts(self, request: Request) -> Facts:
        known, _ = self.rows.get(request.key, (None, None))
        suppressed_by = self.suppressed.get(request.address, ())
        limit, empty_at = self.limits.get(request.tenant), self.buckets.get(request.tenant)
        pending, counted_at = self.pending.get(request.tenant, (0, None))
        bounds = (self.now, 365 * DAY, DAY, self.region)
        quota = self.quotas.get(request.tenant)
        return Facts(known, *bounds, suppressed_by, limit, empty_at, None, quota, pending, counted_at)

    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]:
        self.begin("insert_notifications")
        free = [new for new in candidates if new.request.key not in self.rows and not self.expired(new.request)]
        return {new.request.key: self.put(new) for new in free}

    async def read_notifications(self, ids: Sequence[tuple[str, UUID]]) -> Mapping[UUID, Notification]:
        self.begin("read_notifications")
        stored = {(tenant, row.id): row for (tenant, _), (_, row) in self.rows.items()}
        return {id_: stored[tenant, id_] for tenant, id_ in ids if (tenant, id_) in stored}

    async def make_buckets(self, tenants: Sequence[str]) -> None:
        self.begin("make_buckets")
        self.buckets = dict.fromkeys(tenants, self.now) | self.buckets

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["FakeStore"]:
        self.begin("begin")
        yield self
        self.begin("commit")

    async def lock_buckets(self, tenants: Sequence[str], *, pass_held: bool) -> set[str]:
        self.begin("lock_buckets")
        if not pass_held and self.held & set(tenants):
            raise BucketHeld
        return {tenant for tenant in tenants if tenant in self.buckets} - self.held

    async def count_pending(self, quotas: Mapping[str, int]) -> Mapping[str, int]:
        self.begin("count_pending")
        for tenant, quota in quotas.items():
            there = sum(held == tenant for held, _ in self.rows)
            self.pending[tenant] = min(there - self.ended, quota), self.now
        return {tenant: self.pending[tenant][0] for tenant in quotas}

    async def charge_buckets(self, empty_at: Mapping[str, datetime], pending: Mapping[str, int]) -> None:
        self.begin("charge_buckets")
        self.buckets |= empty_at
        for tenant, count in pending.items():
            before, counted_at = self.pending[tenant]
            self.pending[tenant] = before + count, counted_at


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def accept(store: FakeStore, woken: list[str]) -> Accept:
    return Accept(store, NoTemplates(), pseudonyms=PSEUDONYMS, max_attempts=5, on_due=woken.append, soon=SOON)


async def test_a_free_key_is_written_and_answered(accept: Accept, store: FakeStore) -> None:
    (answer,) = await accept.flush([asked()])
    assert answer == Accepted(store.rows["default", "a"][1], replayed=False)


async def test_a_known_key_is_a_replay_and_writes_nothing(accept: Accept, store: FakeStore) -> None:
    stored = store.put(asked())
    assert await accept.flush([asked()]) == [Accepted(stored, replayed=True)]
    assert store.calls == ["look_up_keys", "read_notifications"]


async def test_a_replay_is_judged_by_nothing(accept: Accept, store: FakeStore) -> None:
    stored = store.put(asked(due=NOW))
    store.now += 400 * DAY
    assert await accept.flush([asked(due=NOW)]) == [Accepted(stored, replayed=True)]


async def test_a_known_key_with_another_request_is_reused(accept: Accept, store: FakeStore) -> None:
    stored = store.put(asked())
    (answer,) = await accept.flush([asked(address="other@example.com")])
    assert isinstance(answer, IdempotencyKeyReused)
    assert answer.metadata == {"notification_id": str(stored.id)}


async def test_a_key_of_another_tenant_is_another_key(accept: Accept, store: FakeStore) -> None:
    other = store.put(asked(tenant="other", address="other@example.com"))
    (answer,) = await accept.flush([asked()])
    assert isinstance(answer, Accepted)
    assert (answer.replayed, answer.notification.id) != (True, other.id)


async def test_a_request_that_is_refused_is_not_written(accept: Accept, store: FakeStore) -> None:
    (answer,) = await accept.flush([asked(due=NOW - 25 * HOUR)])
    assert isinstance(answer, RequestInvalid)
    assert store.calls == ["look_up_keys"]


NATIONAL = "07700900123"


async def test_a_national_number_is_written_as_the_tenants_region_has_it(accept: Accept, store: FakeStore) -> None:
    store.region = "GB"
    (answer,) = await accept.flush([texted(address=NATIONAL)])
    assert isinstance(answer, Accepted)
    assert answer.notification.address == "+447700900123"
    # Again by the number that it is: it may be suppressed.
    assert store.calls == ["look_up_keys", "look_up_keys", "insert_notifications"]


@pytest.mark.parametrize("region", [None, "US", "ZZ"])
async def test_a_national_number_of_no_region_is_refused_and_costs_nobody_else_anything(
    accept: Accept, store: FakeStore, region: str | None
) -> None:
    store.region = region
    refused, accepted = await accept.flush([texted("a", NATIONAL, due=NOW + 400 * DAY), texted("b")])
    assert isinstance(refused, RequestInvalid)
    assert [violation.field for violation in refused.violations] == ["address", "due_time"]
    assert isinstance(accepted, Accepted)


@pytest.mark.parametrize("region", ["GB", "DE", None])
async def test_a_replay_is_still_one_when_the_region_has_changed(
    accept: Accept, store: FakeStore, region: str | None
) -> None:
    store.region = "GB"
    (first,) = await accept.flush([texted(address=NATIONAL)])
    store.region = region
    (again,) = await accept.flush([texted(address=NATIONAL)])
    assert isinstance(first, Accepted)
    assert again == Accepted(first.notification, replayed=True)


async def test_another_national_number_is_another_request(accept: Accept, store: FakeStore) -> None:
    store.region = "GB"
    await accept.flush([texted(address=NATIONAL)])
    (answer,) = await accept.flush([texted(address="07700900124")])
    assert isinstance(answer, IdempotencyKeyReused)


async def test_answers_come_in_the_order_of_the_questions(accept: Accept, store: FakeStore) -> None:
    stored, _ = store.put(asked("b")), store.put(asked("d", address="other@example.com"))
    group = [asked("a"), asked("b"), asked("c", due=NOW + 400 * DAY), asked("d"), asked("e")]
    first, second, third, fourth, fifth = await accept.flush(group)
    assert first == Accepted(store.rows["default", "a"][1], replayed=False)
    assert second == Accepted(stored, replayed=True)
    assert isinstance(third, RequestInvalid)
    assert isinstance(fourth, IdempotencyKeyReused)
    assert fifth == Accepted(store.rows["default", "e"][1], replayed=False)


async def test_who_loses_the_race_for_a_key_is_answered_what_won(accept: Accept, store: FakeStore) -> None:
    store.before["insert_notifications"] = lambda: store.put(asked("a"))
    first, second = await accept.flush([asked("a"), asked("b")])
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (first.replayed, second.replayed) == (True, False)
    assert store.calls == ["look_up_keys", "insert_notifications", "look_up_keys", "read_notifications"]


async def test_who_loses_the_race_to_another_request_is_refused(accept: Accept, store: FakeStore) -> None:
    store.before["insert_notifications"] = lambda: store.put(asked(address="other@example.com"))
    (answer,) = await accept.flush([asked()])
    assert isinstance(answer, IdempotencyKeyReused)


async def test_what_vanished_before_it_was_read_is_written_again(accept: Accept, store: FakeStore) -> None:
    store.put(asked())
    store.before["read_notifications"] = store.rows.clear
    (answer,) = await accept.flush([asked()])
    assert answer == Accepted(store.rows["default", "a"][1], replayed=False)


async def test_what_expires_on_its_way_to_the_database_is_refused(accept: Accept, store: FakeStore) -> None:
    def dawdle() -> None:
        store.now += HOUR

    store.before["insert_notifications"] = dawdle
    (answer,) = await accept.flush([asked(expiry=NOW + TICK)])
    assert isinstance(answer, RequestInvalid)
    assert [violation.field for violation in answer.violations] == ["expire_time"]


async def test_after_three_rounds_the_caller_is_told_to_come_back(accept: Accept, store: FakeStore) -> None:
    store.before["look_up_keys"] = lambda: store.rows.pop(("default", "a"), None)
    store.before["insert_notifications"] = lambda: store.put(asked("a"))
    first, second = await accept.flush([asked("a"), asked("b")])
    assert isinstance(first, DatabaseUnavailable)
    assert isinstance(second, Accepted)
    assert store.calls == ["look_up_keys", "insert_notifications"] * 3


@pytest.mark.parametrize("due", [None, NOW - HOUR, NOW, NOW + SOON, SOON, timedelta()])
async def test_what_is_due_soon_wakes_its_lane(accept: Accept, woken: list[str], due: datetime | timedelta) -> None:
    await accept.flush([asked(due=due)])
    assert woken == ["EMAIL"]


@pytest.mark.parametrize("due", [NOW + SOON + TICK, SOON + TICK, DAY])
async def test_what_is_due_later_wakes_nobody(accept: Accept, woken: list[str], due: datetime | timedelta) -> None:
    await accept.flush([asked(due=due)])
    assert woken == []


async def test_a_group_wakes_each_lane_once(accept: Accept, woken: list[str]) -> None:
    await accept.flush([asked("a"), asked("b"), texted("c"), asked("d", channel="PUSH", due=DAY)])
    assert sorted(woken) == ["EMAIL", "SMS"]


async def test_a_replay_wakes_nobody(accept: Accept, store: FakeStore, woken: list[str]) -> None:
    store.put(asked())
    await accept.flush([asked()])
    assert woken == []


@pytest.mark.parametrize(
    ("due", "expiry"),
    [
        (None, None),
        (NOW, None),
        (NOW - DAY, None),
        (NOW + 365 * DAY, None),
        (timedelta(), None),
        (365 * DAY, None),
        (None, NOW + TICK),
        (None, TICK),
        (NOW + HOUR, NOW + HOUR + TICK),
        (NOW + HOUR, TICK),
        (HOUR, NOW + HOUR + TICK),
        (NOW - HOUR, NOW + TICK),
        (NOW - HOUR, HOUR + TICK),
        (NOW + 365 * DAY, 365 * DAY),
    ],
)
def test_times_that_make_sense_are_accepted(
    due: datetime | timedelta | None, expiry: datetime | timedelta | None
) -> None:
    assert judge(due, expiry) == []


@pytest.mark.parametrize(
    ("due", "expiry", "field", "problem"),
    [
        (NOW - DAY - TICK, None, "due_time", "in the past"),
        (datetime.min.replace(tzinfo=UTC), None, "due_time", "in the past"),
        (NOW + 365 * DAY + TICK, None, "due_time", "ahead"),
        (datetime.max.replace(tzinfo=UTC), None, "due_time", "ahead"),
        (365 * DAY + TICK, None, "delay", "ahead"),
        (None, NOW, "expire_time", "after it is due"),
        (None, NOW - TICK, "expire_time", "after it is due"),
        (NOW + HOUR, NOW + HOUR, "expire_time", "after it is due"),
        (HOUR, NOW + HOUR, "expire_time", "after it is due"),
        (HOUR, timedelta(), "ttl", "after it is due"),
        (NOW - HOUR, NOW - HOUR, "expire_time", "after it is due"),
        (NOW - HOUR, NOW - HOUR + TICK, "expire_time", "passed already"),
        (NOW - HOUR, NOW, "expire_time", "passed already"),
        (NOW - HOUR, HOUR, "ttl", "passed already"),
        # A due time that is wrong says nothing about the expiry.
        (NOW - 2 * DAY, NOW - 3 * DAY, "due_time", "in the past"),
        (NOW + 400 * DAY, NOW, "due_time", "ahead"),
    ],
)
def test_times_that_make_no_sense_are_refused_by_name(
    due: datetime | timedelta | None, expiry: datetime | timedelta | None, field: str, problem: str
) -> None:
    (violation,) = judge(due, expiry)
    assert violation.field == field
    assert problem in violation.problem


def test_the_bounds_are_the_tenants() -> None:
    facts = Facts(None, NOW, horizon=HOUR, past_grace=timedelta())
    assert judge_times(HOUR, None, facts) == []
    assert [violation.field for violation in judge_times(HOUR + TICK, None, facts)] == ["delay"]
    assert [violation.field for violation in judge_times(NOW - TICK, None, facts)] == ["due_time"]


def judge(due: datetime | timedelta | None, expiry: datetime | timedelta | None) -> list[Violation]:
    return judge_times(due, expiry, Facts(None, NOW, horizon=365 * DAY, past_grace=DAY))


def test_a_candidate_weighs_what_its_content_and_labels_do_in_bytes() -> None:
    said = "\N{PILE OF POO}" * 1000
    candidate = asked(content={"subject": said, "headers": {"X-A": said}}, labels={said: said})
    assert 4 * len(said.encode()) <= candidate.size <= 4 * len(said.encode()) + 100


class LosingStore(FakeStore):
    """Its connection is lost on the way back from the first `losses` inserts, which were carried out."""

    losses: int

    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]:
        written = await super().insert_notifications(candidates, max_attempts)
        if self.losses:
            self.losses -= 1
            raise DatabaseUnavailable
        return written


def losing(losses: int, woken: list[str]) -> tuple[Accept, LosingStore]:
    store = LosingStore()
    store.losses = losses
    return Accept(store, NoTemplates(), pseudonyms=PSEUDONYMS, max_attempts=5, on_due=woken.append, soon=SOON), store


async def test_after_a_lost_connection_what_was_committed_is_found_and_is_no_replay(woken: list[str]) -> None:
    accept, store = losing(1, woken)
    (answer,) = await accept.flush([asked()])
    assert answer == Accepted(store.rows["default", "a"][1], replayed=False)
    assert store.calls == ["look_up_keys", "insert_notifications", "look_up_keys", "read_notifications"]
    assert woken == ["EMAIL"]


async def test_a_database_that_stays_away_is_the_callers_to_come_back_to(woken: list[str]) -> None:
    accept, store = losing(2, woken)
    store.before["look_up_keys"] = store.rows.clear
    with pytest.raises(DatabaseUnavailable):
        await accept.flush([asked()])
    assert store.calls == ["look_up_keys", "insert_notifications"] * 2


SUPPRESSIONS: list[tuple[Sequence[str], type[ApiError]]] = [
    (["OPTED_OUT"], RecipientOptedOut),
    (["BOUNCED"], AddressSuppressed),
    (["COMPLAINED"], AddressSuppressed),
    (["OPERATOR"], AddressSuppressed),
    (["BOUNCED", "OPTED_OUT"], RecipientOptedOut),
]


@pytest.mark.parametrize(("sources", "refusal"), SUPPRESSIONS)
async def test_what_must_not_be_sent_is_refused_and_costs_nobody_else_anything(
    accept: Accept, store: FakeStore, sources: Sequence[str], refusal: type[ApiError]
) -> None:
    store.suppressed["gone@example.com"] = sources
    refused, accepted = await accept.flush([asked("a", address="gone@example.com"), asked("b")])
    assert type(refused) is refusal
    assert isinstance(accepted, Accepted)


async def test_a_replay_is_one_whoever_opted_out_since(accept: Accept, store: FakeStore) -> None:
    stored = store.put(asked())
    store.suppressed["someone@example.com"] = ["OPTED_OUT"]
    assert await accept.flush([asked()]) == [Accepted(stored, replayed=True)]
    assert isinstance((await accept.flush([asked(reference="other")]))[0], IdempotencyKeyReused)


async def test_a_national_number_is_suppressed_by_what_its_region_makes_of_it(accept: Accept, store: FakeStore) -> None:
    store.region = "GB"
    store.suppressed["+447700900123"] = ["OPTED_OUT"]
    (answer,) = await accept.flush([texted(address=NATIONAL)])
    assert isinstance(answer, RecipientOptedOut)
    assert store.calls == ["look_up_keys", "look_up_keys"]


UNLIMITED = ["look_up_keys", "insert_notifications"]
LIMITED = [
    *("look_up_keys", "begin", "lock_buckets", "look_up_keys", "insert_notifications", "charge_buckets", "commit"),
]
TEN_A_SECOND = Limit(Fraction(10), burst=2)
INTERVAL = timedelta(milliseconds=100)


async def test_without_a_limit_the_statements_are_the_two_that_it_takes(accept: Accept, store: FakeStore) -> None:
    await accept.flush([asked(f"{number}", tenant=f"t{number % 3}") for number in range(100)])
    assert store.calls == UNLIMITED
    assert store.buckets == {}


async def test_a_tenant_over_its_limit_is_told_when_to_come_back(accept: Accept, store: FakeStore) -> None:
    store.limits["default"] = TEN_A_SECOND
    answers = await accept.flush([asked(f"{number}") for number in range(4)])
    assert [isinstance(answer, Accepted) for answer in answers] == [True, True, False, False]
    assert [answer.retry_after for answer in answers if isinstance(answer, TenantLimitExceeded)] == [
        INTERVAL,
        2 * INTERVAL,
    ]
    assert store.buckets == {"default": NOW + 2 * INTERVAL}
    assert len(store.rows) == 2


async def test_the_bucket_is_held_from_the_second_look_to_the_charge(accept: Accept, store: FakeStore) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW
    await accept.flush([asked()])
    assert store.calls == LIMITED


async def test_who_is_over_the_limit_at_the_first_look_locks_nothing(accept: Accept, store: FakeStore) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW + 2 * INTERVAL
    limited, free = await accept.flush([asked("a"), asked("b", tenant="other")])
    assert isinstance(limited, TenantLimitExceeded)
    assert isinstance(free, Accepted)
    assert store.calls == UNLIMITED


async def test_a_limit_is_one_tenants_own(accept: Accept, store: FakeStore) -> None:
    store.limits["default"] = Limit(Fraction(1), burst=1)
    answers = await accept.flush([asked(f"{n}", tenant=tenant) for n in range(3) for tenant in ("default", "other")])
    assert [isinstance(answer, Accepted) for answer in answers] == [True, True, False, True, False, True]


async def test_what_somebody_else_took_meanwhile_counts(accept: Accept, store: FakeStore) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW

    def other_scheduler() -> None:
        store.buckets["default"] = NOW + 2 * INTERVAL

    store.before["lock_buckets"] = other_scheduler
    (answer,) = await accept.flush([asked()])
    assert isinstance(answer, TenantLimitExceeded)
    assert store.rows == {}
    assert store.buckets == {"default": NOW + 2 * INTERVAL}


async def test_a_key_that_was_written_while_the_bucket_was_waited_for_is_a_replay_and_no_refusal(
    accept: Accept, store: FakeStore
) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW

    def other_scheduler() -> None:
        store.put(asked())
        store.buckets["default"] = NOW + 2 * INTERVAL

    store.before["lock_buckets"] = other_scheduler
    (answer,) = await accept.flush([asked()])
    assert isinstance(answer, Accepted)
    assert answer.replayed
    assert store.buckets == {"default": NOW + 2 * INTERVAL}


async def test_a_replay_and_a_reused_key_spend_nothing(accept: Accept, store: FakeStore) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW + 2 * INTERVAL
    stored = store.put(asked())
    assert await accept.flush([asked()]) == [Accepted(stored, replayed=True)]
    assert isinstance((await accept.flush([asked(reference="other")]))[0], IdempotencyKeyReused)
    assert "begin" not in store.calls
    assert store.buckets == {"default": NOW + 2 * INTERVAL}


async def test_what_is_refused_for_something_else_takes_nobodys_place(accept: Accept, store: FakeStore) -> None:
    store.limits["default"] = Limit(Fraction(1), burst=1)
    store.suppressed["gone@example.com"] = ["BOUNCED"]
    group = [asked("a", due=NOW - 2 * DAY), asked("b", address="gone@example.com"), asked("c")]
    invalid, suppressed, accepted = await accept.flush(group)
    assert isinstance(invalid, RequestInvalid)
    assert isinstance(suppressed, AddressSuppressed)
    assert isinstance(accepted, Accepted)


async def test_who_loses_the_race_for_a_key_spends_nothing(accept: Accept, store: FakeStore) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW
    store.before["insert_notifications"] = lambda: store.put(asked("a"))
    first, second = await accept.flush([asked("a"), asked("b")])
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (first.replayed, second.replayed) == (True, False)
    assert store.buckets == {"default": NOW + INTERVAL}


async def test_nothing_is_written_for_a_limit_that_was_set_after_the_first_look(
    accept: Accept, store: FakeStore
) -> None:
    """Its bucket is not held: the next round begins with it."""
    store.limits["limited"], store.buckets["limited"] = TEN_A_SECOND, NOW

    def owner() -> None:
        store.limits["default"] = Limit(Fraction(1), burst=1)

    store.before["lock_buckets"] = owner
    answers = await accept.flush([asked("a"), asked("b"), asked("c", tenant="limited")])
    assert [type(answer) for answer in answers] == [Accepted, TenantLimitExceeded, Accepted]
    assert store.buckets["default"] == NOW + timedelta(seconds=1)


async def test_a_commit_whose_answer_was_lost_is_charged_once_and_is_no_replay(woken: list[str]) -> None:
    accept, store = losing(1, woken)
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW
    store.losses = 0
    lost = iter([True])

    def lose() -> None:
        if next(lost, False):
            raise DatabaseUnavailable

    store.before["commit"] = lose
    (answer,) = await accept.flush([asked()])
    assert answer == Accepted(store.rows["default", "a"][1], replayed=False)
    assert store.buckets == {"default": NOW + INTERVAL}


@pytest.mark.parametrize("statement", ["begin", "lock_buckets", "charge_buckets"])
async def test_without_its_bucket_nothing_is_accepted(accept: Accept, store: FakeStore, statement: str) -> None:
    store.limits["default"], store.buckets["default"] = TEN_A_SECOND, NOW

    def away() -> None:
        store.rows.clear()  # rolled back
        raise DatabaseUnavailable

    store.before[statement] = away
    with pytest.raises(DatabaseUnavailable):
        await accept.flush([asked()])
    assert store.buckets == {"default": NOW}


COUNTED = [*LIMITED[:4], "count_pending", *LIMITED[4:]]


def full(answers: Sequence[Answer]) -> list[bool]:
    return [isinstance(answer, QuotaExceeded) for answer in answers]


async def test_a_quota_lets_in_what_there_is_room_for_and_counts_only_where_it_seems_full(
    accept: Accept, store: FakeStore
) -> None:
    store.quotas["default"], store.buckets["default"] = 3, NOW

    async def calls(*keys: str) -> tuple[list[bool], list[str]]:
        store.calls.clear()
        return full(await accept.flush([asked(key) for key in keys])), list(store.calls)

    assert await calls("a") == ([False], COUNTED)  # nobody knew how many there are
    assert await calls("b") == ([False], LIMITED)
    assert await calls("c", "d") == ([False, True], LIMITED)  # of the one place that is left
    assert await calls("e") == ([True], ["look_up_keys"])
    assert await calls("a") == ([False], ["look_up_keys", "read_notifications"])
    store.ended = 1
    assert await calls("e") == ([True], ["look_up_keys"])  # counted a moment ago
    store.now += timedelta(seconds=1)
    assert await calls("e", "f") == ([False, True], COUNTED)
    store.now += timedelta(seconds=1)
    assert await calls("f") == ([True], [call for call in COUNTED if call[:6] not in ("insert", "charge")])
    assert store.pending["default"] == (3, store.now)
    assert sum(tenant == "default" for tenant, _ in store.rows) == 4  # one of which has ended


async def test_a_quota_counts_what_went_in_and_nothing_that_was_refused_or_lost_its_key(
    accept: Accept, store: FakeStore
) -> None:
    store.quotas["default"], store.buckets["default"], store.suppressed["gone@example.com"] = 9, NOW, ["OPERATOR"]
    store.before["insert_notifications"] = lambda: store.put(asked("a"))
    await accept.flush([asked("a"), asked("b"), asked("c", address="gone@example.com")])
    assert store.pending["default"] == (1, NOW)


async def test_whose_quota_cannot_be_counted_brings_nothing_in(accept: Accept, store: FakeStore) -> None:
    store.quotas["default"], store.buckets["default"] = 3, NOW

    def away() -> None:
        raise DatabaseUnavailable

    store.before["count_pending"] = away
    with pytest.raises(DatabaseUnavailable):
        await accept.flush([asked()])
    assert not store.rows


async def test_what_an_earlier_round_wrote_is_no_replay_when_a_later_one_loses_the_connection(
    accept: Accept, store: FakeStore, woken: list[str]
) -> None:
    events = iter([lambda: store.put(asked("a"))])  # somebody is first with one of the two
    store.before["insert_notifications"] = lambda: next(events, lambda: None)()
    lost = iter([False, True])

    def lose() -> None:
        if next(lost, False):
            raise DatabaseUnavailable

    store.before["look_up_keys"] = lose
    first, second = await accept.flush([asked("a"), asked("b")])
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (first.replayed, second.replayed) == (True, False)
    assert woken == ["EMAIL"]


async def test_what_an_earlier_round_wrote_is_no_replay_and_wakes_its_lane_when_the_group_is_sent_again(
    accept: Accept, store: FakeStore, woken: list[str]
) -> None:
    """As a group commit does after contention, with the same candidates."""
    events = iter([lambda: store.put(asked("a"))])  # somebody is first with one of the two
    store.before["insert_notifications"] = lambda: next(events, lambda: None)()
    met = iter([False, True])

    def meet() -> None:
        if next(met, False):
            raise Contention

    store.before["look_up_keys"] = meet
    flights = asyncio.Semaphore(0)
    async with GroupCommit[Candidate, Answer](accept.flush, flights=flights, key=lambda one: one.request.key) as group:
        both = asyncio.gather(group.submit(asked("a")), group.submit(asked("b")))
        await settled()
        flights.release()
        answers = await both
    assert store.calls.count("look_up_keys") == 3
    assert [isinstance(answer, Accepted) and answer.replayed for answer in answers] == [True, False]
    assert woken == ["EMAIL"]


async def test_what_another_wrote_after_a_round_that_was_rolled_back_is_a_replay(
    accept: Accept, store: FakeStore
) -> None:
    request = asked()

    def lose_to_another() -> None:
        store.put(asked())
        raise Contention

    store.before["insert_notifications"] = lose_to_another
    with pytest.raises(Contention):
        await accept.flush([request])
    (answer,) = await accept.flush([request])
    assert isinstance(answer, Accepted)
    assert answer.replayed


async def test_whose_bucket_somebody_holds_is_sent_back_and_nobody_else(accept: Accept, store: FakeStore) -> None:
    for tenant in ("stuck", "limited"):
        store.limits[tenant], store.buckets[tenant] = TEN_A_SECOND, NOW
    store.held = {"stuck"}
    answers = await accept.flush(
        [asked("a", tenant="stuck"), asked("b", tenant="limited"), asked("c"), asked("d", tenant="stuck")]
    )
    assert [type(answer) for answer in answers] == [ServerOverloaded, Accepted, Accepted, ServerOverloaded]
    assert store.buckets == {"stuck": NOW, "limited": NOW + INTERVAL}
    assert store.calls.count("lock_buckets") == 2


async def test_whose_limit_is_set_while_another_is_sent_back_is_looked_at_again(
    accept: Accept, store: FakeStore
) -> None:
    store.limits["stuck"], store.buckets["stuck"], store.held = TEN_A_SECOND, NOW, {"stuck"}
    store.before["lock_buckets"] = lambda: store.limits.update(late=TEN_A_SECOND)
    answers = await accept.flush([asked("a", tenant="stuck"), asked("b", tenant="late")])
    assert [type(answer) for answer in answers] == [ServerOverloaded, Accepted]


async def test_whose_limit_is_taken_away_needs_no_bucket_whoever_holds_it(accept: Accept, store: FakeStore) -> None:
    store.limits["stuck"], store.buckets["stuck"], store.held = TEN_A_SECOND, NOW, {"stuck"}
    store.before["lock_buckets"] = store.limits.clear
    (answer,) = await accept.flush([asked("a", tenant="stuck")])
    assert isinstance(answer, Accepted)


def test_what_a_template_will_come_to_counts_before_it_is_known() -> None:
    use = TemplateUse("shipped", None, None, '{"a":"' + "x" * 1_000 + '"}')
    assert asked(content={}, template=use).size > 9_000
