"""docs/guarantees.md says what the code has: its mechanisms, and the tests that hold them."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from tests.mutations.catalogue import COPIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guarantees.md"
HEAD = "| promise | mechanism | tests |"
LINK = re.compile(r"\[`?(?P<label>[^]`]+)`?\]\((?P<target>[^)#]+)\)(?P<marked> †)?")
IN_SCHEMA = r"\b(?:CONSTRAINT|TRIGGER|INDEX|FUNCTION notifyqueue\.) ?{}\b"


@dataclass(frozen=True)
class Link:
    label: str
    path: Path
    marked: bool
    """As one that is proven to fail."""

    @property
    def is_test(self) -> bool:
        return self.label.startswith("test_") and not self.label.endswith(".py")

    @property
    def node(self) -> str:
        return f"{self.path.relative_to(ROOT)}::{self.label}"


def links(text: str) -> list[Link]:
    found = LINK.finditer(text)
    return [Link(one["label"], (PAGE.parent / one["target"]).resolve(), bool(one["marked"])) for one in found]


ALL = links(PAGE.read_text())
TESTS = [link for link in ALL if link.is_test]
STATEMENTS = [link for link in ALL if link.path.parent.name == "sql"]
IN_MIGRATIONS = [link for link in ALL if link.path.suffix == ".sql" and link not in STATEMENTS]
IN_MODULES = [link for link in ALL if link.path.suffix == ".py" and not link.is_test and "/" not in link.label]


def rows() -> Iterator[Sequence[str]]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("|") and line != HEAD and not set(line) <= set("|- "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@cache
def defined(module: Path) -> frozenset[str]:
    """What a module defines, and its classes."""
    return frozenset(_names(ast.parse(module.read_text()), ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from _names(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case _:
                pass


def test_the_page_was_read() -> None:
    assert min(len(part) for part in (TESTS, STATEMENTS, IN_MIGRATIONS, IN_MODULES, list(rows()))) > 10


def test_every_file_that_is_linked_exists() -> None:
    assert [link for link in ALL if not link.path.exists()] == []


def test_every_test_that_is_named_exists() -> None:
    assert [link.node for link in TESTS if link.label not in defined(link.path)] == []


def test_every_statement_that_is_named_is_its_file() -> None:
    assert [link for link in STATEMENTS if link.label != link.path.stem] == []


def test_everything_that_is_named_of_the_schema_is_made_there() -> None:
    wrong = [one for one in IN_MIGRATIONS if not re.search(IN_SCHEMA.format(one.label), one.path.read_text())]
    assert wrong == []


def test_everything_that_is_named_of_a_module_is_defined_there() -> None:
    wrong = [link for link in IN_MODULES if link.label != link.path.name and link.label not in defined(link.path)]
    assert wrong == []


def test_every_promise_has_its_mechanism_and_its_tests() -> None:
    assert [row for row in rows() if not is_whole(row)] == []


def is_whole(row: Sequence[str]) -> bool:
    promise, mechanism, tests = row
    by, shown = links(mechanism), links(tests)
    only_tests = all(link.is_test for link in shown) and not LINK.sub("", tests).strip(" ,")
    return bool(promise and by and shown) and only_tests and not any(link.is_test for link in by)


def test_exactly_what_is_proven_to_fail_is_marked() -> None:
    proven = {test.partition("[")[0] for mutation in chain(*COPIES) for test in mutation.tests}
    assert {link.node for link in TESTS if link.marked} == proven
    assert {link.node for link in TESTS if not link.marked} & proven == set()


def test_no_file_of_tests_is_missing() -> None:
    files = {*(ROOT / "tests").glob("*/test_*.py")}
    assert sorted(files - {link.path for link in ALL}) == []
