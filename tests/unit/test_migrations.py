"""Which migrations are still to be applied, and when that cannot be said."""

import re
from importlib import resources

import pytest

from shared import migrations
from shared.migrations import Migration, MigrationError, latest_version, plan

FIRST = Migration(1, "first", "SELECT 1")
SECOND = Migration(2, "second", "SELECT 2")
THIRD = Migration(3, "third", "SELECT 3")
ALL = [FIRST, SECOND, THIRD]


def applied(*done: Migration) -> dict[int, str]:
    return {migration.version: migration.checksum for migration in done}


@pytest.mark.parametrize(
    ("done", "missing"),
    [
        ([], ALL),
        ([FIRST], [SECOND, THIRD]),
        ([FIRST, SECOND, THIRD], []),
        ([FIRST, THIRD], [SECOND]),
    ],
)
def test_what_is_missing_is_to_be_applied_in_order(done: list[Migration], missing: list[Migration]) -> None:
    assert plan(ALL, applied(*done)) == missing


def test_one_that_was_edited_after_it_was_applied_stops_everything() -> None:
    edited = Migration(2, "second", "SELECT 2 ")
    with pytest.raises(MigrationError, match="migration 2 was edited"):
        plan([FIRST, edited, THIRD], applied(FIRST, SECOND))


def test_one_that_this_version_does_not_know_stops_everything() -> None:
    with pytest.raises(MigrationError, match="has migration 3, which this version does not know"):
        plan([FIRST, SECOND], applied(FIRST, THIRD))


def test_one_that_was_renamed_is_still_the_same() -> None:
    assert plan([Migration(1, "renamed", FIRST.sql)], applied(FIRST)) == []


def test_the_files_are_numbered_from_one_without_a_gap() -> None:
    assert [migration.version for migration in migrations.migrations()] == list(range(1, latest_version() + 1))


def test_every_file_is_named_by_its_number_and_what_it_brings() -> None:
    files = sorted(file.name for file in resources.files(migrations).iterdir() if file.name.endswith(".sql"))
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in files)
    assert [f"{found.version:04}_{found.name}.sql" for found in migrations.migrations()] == files


def test_a_file_has_the_same_checksum_on_every_machine() -> None:
    assert all("\r" not in migration.sql for migration in migrations.migrations())
    assert FIRST.checksum == "e004ebd5b5532a4b85984a62f8ad48a81aa3460c1ca07701f386135d72cdecf5"
