"""How long to wait between attempts."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.backoff import Backoff

spans = st.timedeltas(timedelta(milliseconds=1), timedelta(days=365)).map(
    lambda span: span - span % timedelta(milliseconds=1)
)
attempts = st.integers(1, 1_000)


class Dice(random.Random):
    """Always falls the same way."""

    def __init__(self, side: float) -> None:
        super().__init__()
        self._side = side

    def random(self) -> float:
        return self._side


LUCK = pytest.mark.parametrize(("side", "part"), [(0.0, 0.5), (0.5, 0.75)])


@given(base=spans, cap=spans, attempt=attempts)
def test_it_is_never_above_the_cap(base: timedelta, cap: timedelta, attempt: int) -> None:
    assert Backoff(base, cap, Dice(1 - 2**-53)).delay(attempt) <= cap


@given(base=spans, cap=spans, attempt=attempts)
def test_at_least_half_of_it_is_kept(base: timedelta, cap: timedelta, attempt: int) -> None:
    full = min(base * 2 ** min(attempt - 1, 20), cap)
    assert Backoff(base, cap).delay(attempt) >= full / 2


@LUCK
def test_it_doubles_with_each_attempt_up_to_the_cap(side: float, part: float) -> None:
    backoff = Backoff(timedelta(seconds=2), timedelta(seconds=15), Dice(side))
    delays = [backoff.delay(attempt).total_seconds() for attempt in range(1, 7)]
    assert delays == [part * full for full in (2, 4, 8, 15, 15, 15)]


@LUCK
def test_no_attempt_yet_waits_like_the_first(side: float, part: float) -> None:
    backoff = Backoff(timedelta(seconds=2), dice=Dice(side))
    assert backoff.delay(0) == backoff.delay(-1) == timedelta(seconds=2 * part)


def test_a_herd_is_spread() -> None:
    backoff = Backoff(timedelta(seconds=2))
    assert len({backoff.delay(3) for _ in range(100)}) > 90
