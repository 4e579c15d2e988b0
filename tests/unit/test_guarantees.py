"""docs/guarantees.md says what the code has: its mechanisms, and the tests that hold them."""

import re
from collections.abc import Sequence
from itertools import chain

from tests.mutations.catalogue import COPIES
from tests.pages import LINK, ROOT, Page, defined

PAGE = Page("guarantees.md", "| promise | mechanism | tests |")
IN_SCHEMA = r"\b(?:CONSTRAINT|TRIGGER|INDEX|FUNCTION notifyqueue\.) ?{}\b"

ALL = PAGE.links()
TESTS = [link for link in ALL if link.is_test]
STATEMENTS = [link for link in ALL if link.path.parent.name == "sql"]
IN_MIGRATIONS = [link for link in ALL if link.path.suffix == ".sql" and link not in STATEMENTS]
IN_MODULES = [link for link in ALL if link.path.suffix == ".py" and not link.is_test and "/" not in link.label]


def test_the_page_was_read() -> None:
    assert min(len(part) for part in (TESTS, STATEMENTS, IN_MIGRATIONS, IN_MODULES, list(PAGE.rows()))) > 10


def test_every_file_that_is_linked_exists() -> None:
    assert [link for link in ALL if not link.path.exists()] == []


def test_every_test_that_is_named_exists() -> None:
    assert [link.node for link in TESTS if not link.is_there] == []


def test_every_statement_that_is_named_is_its_file() -> None:
    assert [link for link in STATEMENTS if link.label != link.path.stem] == []


def test_everything_that_is_named_of_the_schema_is_made_there() -> None:
    wrong = [one for one in IN_MIGRATIONS if not re.search(IN_SCHEMA.format(one.label), one.path.read_text())]
    assert wrong == []


def test_everything_that_is_named_of_a_module_is_defined_there() -> None:
    wrong = [link for link in IN_MODULES if link.label != link.path.name and link.label not in defined(link.path)]
    assert wrong == []


def test_every_promise_has_its_mechanism_and_its_tests() -> None:
    assert [row for row in PAGE.rows() if not is_whole(row)] == []


def is_whole(row: Sequence[str]) -> bool:
    promise, mechanism, tests = row
    by, shown = PAGE.links(mechanism), PAGE.links(tests)
    only_tests = all(link.is_test for link in shown) and not LINK.sub("", tests).strip(" ,")
    return bool(promise and by and shown) and only_tests and not any(link.is_test for link in by)


def test_exactly_what_is_proven_to_fail_is_marked() -> None:
    proven = {test.partition("[")[0] for mutation in chain(*COPIES) for test in mutation.tests}
    assert {link.node for link in TESTS if link.marked} == proven
    assert {link.node for link in TESTS if not link.marked} & proven == set()


def test_no_file_of_tests_is_missing() -> None:
    files = {*(ROOT / "tests").glob("*/test_*.py")}
    assert sorted(files - {link.path for link in ALL}) == []
