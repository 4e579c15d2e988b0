"""docs/providers.md: every answer that is classified, and a test for it that exists."""

import re
from pathlib import Path

from services.worker.providers.catalogue import MAKERS
from tools.providers_page import BLOCK, PAGE, TABLES, filled

ROOT = Path(__file__).resolve().parent.parent.parent
NAMED = re.compile(r"`(?P<file>tests/[a-z0-9_/]+\.py)::(?P<test>test_[a-z0-9_]+)`")


def test_its_tables_are_what_the_worker_decides_by() -> None:
    page = PAGE.read_text("utf-8")
    assert page == filled(page)
    assert {found["name"] for found in BLOCK.finditer(page)} == set(TABLES)


def test_each_provider_has_its_section_and_its_test() -> None:
    sections = dict(re.findall(r"^## ([a-z]+)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    assert set(sections) == set(MAKERS)
    assert all(NAMED.search(text) for text in sections.values())


def test_the_tests_that_it_names_exist() -> None:
    for found in NAMED.finditer(PAGE.read_text("utf-8")):
        assert f"def {found['test']}(" in (ROOT / found["file"]).read_text("utf-8"), found["test"]
