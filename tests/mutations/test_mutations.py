"""Every mechanism that a promise rests on is taken out of a copy of the source, and its own test notices.

The tests that the suite runs all pass; these show that they could fail.
"""

from collections.abc import Sequence
from itertools import chain

import pytest

from tests.mutations.catalogue import COPIES, Mutation
from tests.mutations.copies import PASSED, copy, missed, run

# One of each file: what a copy lacks, it lacks for all of a file, and the suite itself runs each of them unchanged.
SOME = tuple({test.partition("::")[0]: test for mutation in chain(*COPIES) for test in mutation.tests}.values())


def test_on_an_unchanged_copy_a_test_of_each_file_passes() -> None:
    with copy() as folder:
        assert run(folder, SOME) == (0, dict.fromkeys(SOME, PASSED))


@pytest.mark.parametrize("mutations", COPIES, ids=("first copy", "second copy", "third copy"))
def test_without_its_mechanism_a_promise_is_seen_to_break(mutations: Sequence[Mutation]) -> None:
    with copy(mutations) as folder:
        code, ended = run(folder, [test for mutation in mutations for test in mutation.tests])
    assert {mutation.name: found for mutation in mutations if (found := missed(mutation, ended))} == {}
    assert code == 1


def test_every_mutation_has_a_name_of_its_own_and_a_test() -> None:
    names = [mutation.name for mutation in chain(*COPIES)]
    assert len(names) == len(set(names))
    assert all(mutation.tests for mutation in chain(*COPIES))
