"""Accepting: what is replayed, refused and written, and in how many rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from services.scheduler.accept import Accept, Accepted, Candidate, Facts, Key, Known, candidate, judge_times
from services.scheduler.notification import Notification, Request
from shared.errors import DatabaseUnavailable, IdempotencyKeyReused, RequestInvalid, Violation

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
    rows: dict[Key, tuple[Known, Notification]] = field(default_factory=dict)
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

    async def look_up_keys(self, keys: Sequence[Key]) -> Mapping[Key, Facts]:
        self.begin("look_up_keys")
        known = {key: self.rows[key][0] for key in keys if key in self.rows}
        return {key: Facts(known.get(key), self.now, 365 * DAY, DAY, self.region) for key in keys}

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


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def accept(store: FakeStore, woken: list[str]) -> Accept:
    return Accept(store, max_attempts=5, on_due=woken.append, soon=SOON)


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
    assert store.calls == ["look_up_keys", "insert_notifications"]


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
    assert judge_times(replace(REQUEST, due=HOUR), facts) == []
    assert [violation.field for violation in judge_times(replace(REQUEST, due=HOUR + TICK), facts)] == ["delay"]
    assert [violation.field for violation in judge_times(replace(REQUEST, due=NOW - TICK), facts)] == ["due_time"]


def judge(due: datetime | timedelta | None, expiry: datetime | timedelta | None) -> list[Violation]:
    return judge_times(replace(REQUEST, due=due, expiry=expiry), Facts(None, NOW, horizon=365 * DAY, past_grace=DAY))


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
    return Accept(store, max_attempts=5, on_due=woken.append, soon=SOON), store


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
