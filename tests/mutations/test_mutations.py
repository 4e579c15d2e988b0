"""Every mechanism that a promise rests on is taken out of a copy of the source, and its own test notices.

The tests that the suite runs all pass; these show that they could fail.
"""

from collections.abc import Sequence
from itertools import chain

import pytest

from tests.mutations.catalogue import COPIES, Mutation
from tests.mutations.copies import FAILED, PASSED, Ended, copy, run

ALL = tuple(chain(*COPIES))
TESTS = tuple(dict.fromkeys(chain(*(mutation.tests for mutation in ALL))))


def test_on_an_unchanged_copy_each_of_the_tests_passes() -> None:
    with copy() as folder:
        code, ended = run(folder, TESTS)
    assert (code, ended) == (0, dict.fromkeys(TESTS, Ended(PASSED)))


@pytest.mark.parametrize("mutations", COPIES, ids=lambda mutations: f"{mutations[0].name} and others")
def test_without_its_mechanism_a_promise_is_seen_to_break(mutations: Sequence[Mutation]) -> None:
    tests = [test for mutation in mutations for test in mutation.tests]
    with copy(mutations) as folder:
        code, ended = run(folder, tests)
    assert {test: ended[test].how for test in tests} == dict.fromkeys(tests, FAILED), ended
    assert code == 1


def test_the_mutations_of_a_copy_touch_different_files() -> None:
    for mutations in COPIES:
        files = [mutation.file for mutation in mutations]
        assert len(files) == len(set(files))
