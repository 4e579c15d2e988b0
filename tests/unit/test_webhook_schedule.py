"""When a delivery is tried again, and what a Retry-After can and cannot do to that."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.schedule import DELAYS, JITTER, Schedule
from shared.retry_after import LONGEST_WAIT, retry_after

NOW = datetime(2025, 11, 30, 10, 53, 20, tzinfo=UTC)
NOTHING = timedelta()


@given(attempt=st.integers(1, 9))
def test_a_delay_is_the_specifications_within_a_fifth(attempt: int) -> None:
    delay = Schedule().delay(attempt)
    assert DELAYS[attempt] * (1 - JITTER) <= delay <= DELAYS[attempt] * (1 + JITTER)


@given(attempt=st.integers(-5, 10_000))
def test_past_the_end_of_the_schedule_its_last_delay_is_repeated(attempt: int) -> None:
    within = min(max(attempt, 1), 9)
    delay = Schedule().delay(attempt)
    assert DELAYS[within] * (1 - JITTER) <= delay <= DELAYS[within] * (1 + JITTER)


def test_delays_are_spread() -> None:
    schedule = Schedule()
    assert len({schedule.delay(3) for _ in range(20)}) > 10


def test_ten_attempts_span_three_days() -> None:
    assert sum(DELAYS, timedelta()) == timedelta(hours=75, minutes=35, seconds=5)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", timedelta(minutes=2)),
        (" 120 ", timedelta(minutes=2)),
        ("0", NOTHING),
        ("0" * 5000 + "120", timedelta(minutes=2)),
        ("0" * 5000, NOTHING),
        ("86400", LONGEST_WAIT),
        ("86401", LONGEST_WAIT),
        ("9" * 5000, LONGEST_WAIT),
        ("Sun, 30 Nov 2025 10:55:20 GMT", timedelta(minutes=2)),
        ("Sunday, 30-Nov-25 10:55:20 GMT", timedelta(minutes=2)),
        ("Sun Nov 30 10:55:20 2025", timedelta(minutes=2)),
        ("Sun, 30 Nov 2025 11:55:20 +0100", timedelta(minutes=2)),
        ("Sun, 30 Nov 2099 10:55:20 GMT", LONGEST_WAIT),
        ("Sun, 30 Nov 2025 10:53:20 GMT", NOTHING),
        ("Mon, 01 Jan 1990 00:00:00 GMT", NOTHING),
        ("", NOTHING),
        ("-5", NOTHING),
        ("+5", NOTHING),
        ("1.5", NOTHING),
        ("1e300", NOTHING),
        ("nan", NOTHING),
        ("inf", NOTHING),
        ("Infinity", NOTHING),
        ("0x10", NOTHING),
        ("1_000", NOTHING),
        ("١٢", NOTHING),
        ("soon", NOTHING),
        ("Sun, 99 Nov 2025 10:55:20 GMT", NOTHING),
        ("Sun, 30 Nov 2025 99:99:99 GMT", NOTHING),
        ("Sun, 30 Nov 99999999999 10:55:20 GMT", NOTHING),
        ("Sun, 30 Nov 0000 10:55:20 GMT", NOTHING),
        ("Sun, 30 Nov 2025 10:55:20 +99999999", NOTHING),
        ("\udce9\x00", NOTHING),
        (",", NOTHING),
        ("120, 120", NOTHING),
    ],
)
def test_what_a_retry_after_means(value: str, wait: timedelta) -> None:
    assert retry_after(value, NOW) == wait


def test_a_date_asks_for_nothing_where_nobody_knows_what_time_it_is() -> None:
    assert retry_after("Sun, 30 Nov 2025 10:55:20 GMT", None) == NOTHING
    assert retry_after("120", None) == timedelta(minutes=2)


@given(
    value=st.one_of(st.text(), st.from_regex(r"[A-Za-z]{3}, [0-9]{1,3} [A-Za-z]{3} -?[0-9]{1,9} [0-9:+-]{1,20} .{0,5}"))
)
def test_no_retry_after_raises_or_asks_for_more_than_a_day(value: str) -> None:
    assert NOTHING <= retry_after(value, NOW) <= LONGEST_WAIT
