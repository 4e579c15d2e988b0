"""A limit: never more than the burst and what the rate allows, in any span of time, and no less either."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.limits import MANY, RECOUNT, Bucket, Limit, Quota, charges, plan, refusals
from shared.errors import QuotaExceeded, TenantLimitExceeded

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)

limits = st.builds(
    Limit,
    st.integers(1, 999_999_999).map(lambda thousandths: Fraction(thousandths, 1000)),
    st.integers(1, 50),
)
# A group comes so long after the one before, has so many requests, and so many of those that pass lose their key.
groups = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 60), st.integers(0, 3)), max_size=15)


def run(limit: Limit, arrivals: list[tuple[int, int, int]]) -> list[tuple[datetime, int]]:
    """When how many went in."""
    now, empty_at, went_in = NOW, NOW, []
    for gap, count, losers in arrivals:
        now += gap * TICK
        bucket = {"t": Bucket(limit, now, empty_at)}
        passed = plan(["t"] * count, bucket).count(None)
        written = max(passed - losers, 0)
        empty_at = charges(["t"] * written, bucket).get("t", empty_at)
        went_in.append((now, written))
    return went_in


@given(limits, groups)
def test_no_span_of_time_has_more_than_the_burst_and_what_the_rate_allows(
    limit: Limit, arrivals: list[tuple[int, int, int]]
) -> None:
    went_in = run(limit, arrivals)
    for first, (begin, _) in enumerate(went_in):
        total = 0
        for end, count in went_in[first:]:
            total += count
            assert total <= limit.burst + limit.rate * ((end - begin) // TICK) / 1_000_000


@given(limits, groups, st.integers(1, 60))
def test_who_comes_back_when_it_was_told_to_goes_in_and_a_moment_earlier_does_not(
    limit: Limit, arrivals: list[tuple[int, int, int]], count: int
) -> None:
    now, empty_at = NOW, NOW
    for gap, size, _ in arrivals:
        now += gap * TICK
        bucket = Bucket(limit, now, empty_at)
        empty_at = bucket.charged(plan(["t"] * size, {"t": bucket}).count(None))
    bucket = Bucket(limit, now, empty_at)
    waits = plan(["t"] * count, {"t": bucket})
    empty_at = bucket.charged(waits.count(None))
    refused = [wait for wait in waits if wait]
    if refused:
        then = now + refused[0]  # to the microsecond that a charge is rounded up to
        assert plan(["t"], {"t": Bucket(limit, then + TICK, empty_at)}) == [None]
        assert plan(["t"], {"t": Bucket(limit, then - TICK, empty_at)}) != [None]
    for before, after in pairwise(refused):
        assert after >= before


@given(limits, st.integers(1, 60))
def test_an_idle_tenant_has_its_whole_burst_and_no_more(limit: Limit, count: int) -> None:
    waits = plan(["t"] * count, {"t": Bucket(limit, NOW, NOW - 365 * 24 * 3600 * SECOND)})
    assert waits.count(None) == min(count, limit.burst)
    assert waits[: limit.burst] == [None] * min(count, limit.burst)


@given(limits, st.integers(1, 60))
def test_a_steady_caller_gets_its_rate_and_no_more(limit: Limit, rounds: int) -> None:
    """One at a time, as soon as it may: after the burst, one an interval, less what whole microseconds take."""
    now, empty_at = NOW, NOW
    for _ in range(limit.burst + rounds):
        bucket = Bucket(limit, now, empty_at)
        now += max(bucket.wait(0), timedelta())
        empty_at = Bucket(limit, now, empty_at).charged(1)
    least = rounds * 1_000_000 / limit.rate
    assert least <= (now - NOW) // TICK <= least + rounds + limit.burst


@given(limits, st.integers(0, 10**12))
def test_a_debt_from_another_limit_or_a_clock_that_was_put_back_is_no_more_than_a_burst(
    limit: Limit, ahead: int
) -> None:
    bucket = Bucket(limit, NOW, NOW + ahead * TICK)
    assert bucket.wait(0) <= (limit.spent_by(1) + 1) * TICK
    assert bucket.charged(0) >= min(NOW + ahead * TICK, NOW + limit.spent_by(limit.burst) * TICK)


def test_a_group_is_planned_in_the_order_in_which_it_came() -> None:
    limit = Limit(Fraction(10), burst=2)
    buckets = {"a": Bucket(limit, NOW, NOW), "b": Bucket(limit, NOW, NOW + SECOND / 10)}
    wait = SECOND / 10
    assert plan(["a", "b", "a", "c", "b", "a", "c", "b", "a"], buckets) == [
        *(None, None, None, None),
        wait,
        wait,
        None,
        2 * wait,
        2 * wait,
    ]


def test_what_went_in_is_charged_to_whom_it_belongs_in_the_order_of_the_keys() -> None:
    limit = Limit(Fraction(10), burst=5)
    buckets = {"b": Bucket(limit, NOW, NOW + SECOND), "a": Bucket(limit, NOW, NOW - SECOND)}
    charged = charges(["b", "free", "a", "b", "a", "a"], buckets)
    assert list(charged.items()) == [("a", NOW + 3 * SECOND / 10), ("b", NOW + SECOND / 2 + 2 * SECOND / 10)]
    assert charges([], buckets) == {}


@pytest.mark.parametrize(
    ("rate", "count", "microseconds"), [("3", 1, 333_334), ("3", 3, 1_000_000), ("0.001", 1, 10**9)]
)
def test_whole_microseconds_are_rounded_against_the_caller(rate: str, count: int, microseconds: int) -> None:
    assert Limit(Fraction(rate), 1).spent_by(count) == microseconds


def quota(room: int, counted_ago: timedelta | None) -> Quota:
    return Quota(10, NOW, 10 - room, NOW - counted_ago if counted_ago is not None else None)


@pytest.mark.parametrize(
    ("counted_ago", "room", "count", "unclear"),
    [
        (None, 10, 1, True),  # nobody knows how many there are
        (None, 10, 0, False),
        (SECOND * 60, 5, 5, False),  # there are that many at most, however old the count is
        (SECOND * 60, 5, 6, True),
        (RECOUNT, 0, 1, True),
        (RECOUNT - TICK, 0, 1, False),
        (-TICK, 0, 1, True),  # the clock was put back
    ],
)
def test_a_quota_is_counted_where_it_seems_full_and_once_a_second_at_most(
    counted_ago: timedelta | None, room: int, count: int, unclear: bool
) -> None:
    assert quota(room, counted_ago).is_unclear(count) is unclear


def test_a_large_quota_is_counted_as_much_less_often_as_it_takes_longer() -> None:
    full = Quota(10 * MANY, NOW, 10 * MANY, NOW - 10 * RECOUNT + TICK)
    assert not full.is_unclear(1)
    assert replace(full, now=NOW + TICK).is_unclear(1)


def test_who_finds_no_room_is_told_so_and_a_limit_is_asked_after_the_quota() -> None:
    buckets = {name: Bucket(Limit(Fraction(1), burst=2), NOW, NOW) for name in ("both", "rate")}
    quotas = {"both": quota(1, SECOND / 2), "old": quota(0, SECOND * 2), "full": quota(-3, SECOND / 2)}
    asked = ["both", "old", "both", "full", "rate", "both", "rate", "rate", "free"]
    found = [type(refusal) if refusal else None for refusal in refusals(asked, buckets, quotas)]
    full, over = QuotaExceeded, TenantLimitExceeded
    assert found == [None, None, full, full, None, full, None, over, None]
