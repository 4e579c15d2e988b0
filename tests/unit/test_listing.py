"""Lists: which ids a page may have, which index leads, and where the next page begins."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.listing import OLDEST, SLACK, Filter, Scan, leading, list_page, scan_of
from services.scheduler.notification import Notification
from shared.errors import RequestInvalid
from shared.paging import NEWEST, Page

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def id_at(time: datetime, rest: int = 0) -> UUID:
    """A UUIDv7 of this time."""
    return UUID(int=(int(time.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | rest)


def stored(id_: UUID) -> Notification:
    return Notification(
        id=id_,
        idempotency_key=str(id_),
        channel="EMAIL",
        address="someone@example.com",
        priority=2,
        status="PENDING",
        due_at=NOON,
        next_attempt_at=NOON,
        expire_at=None,
        max_attempts=5,
        at_most_once=False,
        category="",
        reference=None,
        labels={},
        created_at=NOON,
    )


def test_a_filter_without_times_leaves_all_ids() -> None:
    assert scan_of(Filter()) == Scan(before=NEWEST, after=OLDEST)


def test_a_page_begins_below_the_last_one() -> None:
    assert scan_of(Filter(), id_at(NOON)) == Scan(before=id_at(NOON), after=OLDEST)


def test_a_page_begins_below_the_last_one_also_within_times() -> None:
    filter_ = Filter(created_before=NOON)
    assert scan_of(filter_, id_at(NOON - timedelta(days=1))).before == id_at(NOON - timedelta(days=1))
    assert scan_of(filter_).before < id_at(NOON + 2 * SLACK)


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.timedeltas(-SLACK, SLACK),
    st.integers(0, 2**62 - 1),
)
def test_an_id_that_is_a_little_off_its_rows_time_is_not_lost(time: datetime, off: timedelta, rest: int) -> None:
    scan = scan_of(Filter(created_since=time, created_before=time + timedelta(milliseconds=2)))
    assert scan.after <= id_at(time + off, rest) < scan.before


@pytest.mark.parametrize("off", [-timedelta(hours=1), timedelta(hours=1)])
def test_an_id_far_from_the_times_is_not_read(off: timedelta) -> None:
    scan = scan_of(Filter(created_since=NOON, created_before=NOON))
    assert not scan.after <= id_at(NOON + off) < scan.before


@pytest.mark.parametrize("time", [FIRST, datetime(1969, 12, 31, tzinfo=UTC)])
def test_a_time_before_all_ids_leaves_all_or_none(time: datetime) -> None:
    assert scan_of(Filter(created_since=time)).after == OLDEST
    assert scan_of(Filter(created_before=time)).before == OLDEST


def test_the_last_time_there_is_leaves_all_or_none() -> None:
    assert scan_of(Filter(created_before=LAST)).before > id_at(datetime(9999, 12, 31, tzinfo=UTC))
    assert scan_of(Filter(created_since=LAST)).after > id_at(datetime(9999, 12, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    ("filter_", "lead"),
    [
        (Filter(), Filter()),
        (Filter(channel="EMAIL", created_since=NOON, created_before=NOON), Filter()),
        (Filter(status="FAILED", channel="EMAIL"), Filter(status="FAILED")),
        (Filter(status="FAILED", address="a"), Filter(address="a")),
        (Filter(status="FAILED", address="a", reference="r"), Filter(reference="r")),
        (Filter(status="FAILED", reference="r"), Filter(reference="r")),
        (Filter(status="FAILED", address="a", subscriber="s"), Filter(subscriber="s")),
    ],
)
def test_the_most_selective_part_of_a_filter_leads(filter_: Filter, lead: Filter) -> None:
    assert leading(filter_) == lead


@dataclass
class FakeStore:
    """Answers the rows and the end of the scan that it is given."""

    rows: Sequence[Notification]
    end: UUID | None = None
    asked: list[Filter] = field(default_factory=list)

    region: str | None = None

    async def read_region(self, tenant: str) -> str | None:
        return self.region

    async def list_notifications(
        self, tenant: str, filter_: Filter, scan: Scan, limit: int
    ) -> tuple[Sequence[Notification], UUID | None]:
        self.asked.append(filter_)
        return self.rows[:limit], self.end


ROWS = [stored(id_at(NOON, rest)) for rest in (3, 2, 1)]


async def test_a_full_page_ends_at_its_last_row() -> None:
    store = FakeStore(ROWS)
    assert await list_page(store, "default", Filter(), Page(2)) == (ROWS[:2], ROWS[1].id)


async def test_a_short_page_is_the_last_where_the_scan_came_to_its_end() -> None:
    assert await list_page(FakeStore(ROWS), "default", Filter(), Page(4)) == (ROWS, None)


@pytest.mark.parametrize("rows", [ROWS, []])
async def test_a_short_page_goes_on_where_its_scan_ended(rows: Sequence[Notification]) -> None:
    store = FakeStore(rows, end=id_at(NOON))
    assert await list_page(store, "default", Filter(), Page(4)) == (rows, id_at(NOON))


async def test_a_national_number_is_looked_for_by_the_tenants_region() -> None:
    store = FakeStore(ROWS, region="GB")
    await list_page(store, "default", Filter(channel="SMS", address="07700900123"), Page(4))
    assert store.asked == [Filter(channel="SMS", address="+447700900123")]


@pytest.mark.parametrize(("channel", "address"), [("SMS", "+447700900123"), ("PUSH", "07700900123")])
async def test_what_names_its_country_or_needs_none_is_looked_for_as_it_is(channel: str, address: str) -> None:
    store = FakeStore(ROWS, region="GB")
    await list_page(store, "default", Filter(channel=channel, address=address), Page(4))
    assert store.asked == [Filter(channel=channel, address=address)]


@pytest.mark.parametrize(("region", "problem"), [(None, "needs its country code"), ("US", "is not a telephone number")])
async def test_a_national_number_of_no_region_is_refused(region: str | None, problem: str) -> None:
    store = FakeStore(ROWS, region=region)
    with pytest.raises(RequestInvalid) as error:
        await list_page(store, "default", Filter(channel="SMS", address="07700900123"), Page(4))
    (violation,) = error.value.violations
    assert (violation.field, store.asked) == ("filter.address", [])
    assert problem in violation.problem
