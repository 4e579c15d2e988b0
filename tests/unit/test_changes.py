"""Rescheduling: what a new due time is judged by, what is answered, and who is woken."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from services.scheduler.changes import By, Rescheduling, Schedule, Wish
from services.scheduler.notification import Notification
from shared.errors import ApiError, RequestInvalid, ResourceNotFound, StatusConflict

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
SOON = timedelta(seconds=5)
ID = UUID(int=1)
BY = By("key:1", "why")

PENDING = Notification(
    id=ID,
    idempotency_key="a",
    channel="SMS",
    address="+447700900123",
    priority=2,
    status="PENDING",
    due_at=NOW + DAY,
    next_attempt_at=NOW + DAY,
    expire_at=None,
    max_attempts=5,
    at_most_once=False,
    category="",
    reference=None,
    labels={},
    created_at=NOW - DAY,
)


@dataclass
class FakeStore:
    """One notification: as it is looked at first, and as it is found under the lock."""

    seen: Schedule | None = field(default_factory=lambda: Schedule("PENDING", None, NOW, 365 * DAY, DAY))
    found: Notification | None = PENDING
    given: list[tuple[datetime | None, int | None]] = field(default_factory=list)

    async def find_id(self, tenant: str, idempotency_key: str) -> UUID | None:
        return ID if idempotency_key == "a" else None

    async def read_notification(self, tenant: str, notification_id: UUID) -> Notification | None:
        return self.found

    async def cancel_notification(self, tenant: str, notification_id: UUID, actor: str, note: str) -> str | None:
        raise NotImplementedError

    async def read_schedule(self, tenant: str, notification_id: UUID) -> Schedule | None:
        return self.seen

    async def reschedule_notification(
        self,
        tenant: str,
        notification_id: UUID,
        due_at: datetime | None,
        priority: int | None,
        *,
        actor: str,
        note: str,
    ) -> Notification | None:
        assert By(actor, note) == BY
        self.given.append((due_at, priority))
        if self.found is None:
            return None
        next_attempt = self.found.next_attempt_at if due_at is None else max(due_at, NOW)
        return replace(self.found, next_attempt_at=next_attempt)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def rescheduling(store: FakeStore, woken: list[str]) -> Rescheduling:
    return Rescheduling(store, on_due=woken.append, soon=SOON)


async def refusal(rescheduling: Rescheduling, wish: Wish, key: UUID | str = ID) -> ApiError:
    with pytest.raises(ApiError) as error:
        await rescheduling.reschedule("default", key, wish, BY)
    return error.value


@pytest.mark.parametrize(
    ("due", "given"), [(NOW + HOUR, NOW + HOUR), (NOW - HOUR, NOW - HOUR), (HOUR, NOW + HOUR), (None, None)]
)
async def test_the_time_that_was_judged_is_the_one_that_is_given(
    rescheduling: Rescheduling, store: FakeStore, due: datetime | timedelta | None, given: datetime | None
) -> None:
    await rescheduling.reschedule("default", "a", Wish(due, 3), BY)
    assert store.given == [(given, 3)]


@pytest.mark.parametrize(
    ("due", "name"),
    [
        (NOW - DAY - TICK, "due_time"),
        (NOW + 365 * DAY + TICK, "due_time"),
        (365 * DAY + TICK, "delay"),
        (NOW + 2 * DAY, "due_time"),
        (2 * DAY, "delay"),
    ],
)
async def test_a_time_that_makes_no_sense_is_refused_by_its_field(
    rescheduling: Rescheduling, store: FakeStore, due: datetime | timedelta, name: str
) -> None:
    store.seen = Schedule("PENDING", NOW + 2 * DAY, NOW, 365 * DAY, DAY)
    error = await refusal(rescheduling, Wish(due, None))
    assert isinstance(error, RequestInvalid)
    assert [violation.field for violation in error.violations] == [name]
    assert store.given == []


async def test_what_has_expired_has_no_due_time_any_more(rescheduling: Rescheduling, store: FakeStore) -> None:
    store.seen = Schedule("PENDING", NOW, NOW, 365 * DAY, DAY)
    assert isinstance(await refusal(rescheduling, Wish(NOW - HOUR, None)), RequestInvalid)


async def test_a_time_just_before_it_expires_is_given(rescheduling: Rescheduling, store: FakeStore) -> None:
    store.seen = Schedule("PENDING", NOW + 2 * DAY, NOW, 365 * DAY, DAY)
    await rescheduling.reschedule("default", ID, Wish(2 * DAY - TICK, None), BY)
    assert store.given == [(NOW + 2 * DAY - TICK, None)]


async def test_what_is_unknown_is_not_found(rescheduling: Rescheduling, store: FakeStore) -> None:
    assert isinstance(await refusal(rescheduling, Wish(HOUR, None), "b"), ResourceNotFound)
    store.found = None
    assert isinstance(await refusal(rescheduling, Wish(HOUR, None)), ResourceNotFound)
    store.seen = None
    assert isinstance(await refusal(rescheduling, Wish(HOUR, None)), ResourceNotFound)


async def test_a_status_that_forbids_it_is_told_before_a_time_that_makes_no_sense(
    rescheduling: Rescheduling, store: FakeStore
) -> None:
    store.seen = Schedule("SENT", None, NOW, 365 * DAY, DAY)
    error = await refusal(rescheduling, Wish(NOW - 2 * DAY, None))
    assert isinstance(error, StatusConflict)
    assert error.metadata["status"] == "SENT"
    assert store.given == []


async def test_who_loses_to_a_claim_is_told_so(rescheduling: Rescheduling, store: FakeStore, woken: list[str]) -> None:
    store.found = replace(PENDING, status="PROCESSING")
    error = await refusal(rescheduling, Wish(timedelta(), None))
    assert isinstance(error, StatusConflict)
    assert error.metadata["status"] == "PROCESSING"
    assert woken == []


@pytest.mark.parametrize("due", [timedelta(), SOON, NOW - HOUR, NOW + SOON])
async def test_what_is_now_due_soon_wakes_its_lane(
    rescheduling: Rescheduling, woken: list[str], due: datetime | timedelta
) -> None:
    await rescheduling.reschedule("default", ID, Wish(due, None), BY)
    assert woken == ["SMS"]


@pytest.mark.parametrize("wish", [Wish(SOON + TICK, None), Wish(None, 3)])
async def test_what_is_due_later_wakes_nobody(rescheduling: Rescheduling, woken: list[str], wish: Wish) -> None:
    await rescheduling.reschedule("default", ID, wish, BY)
    assert woken == []
