"""Which instants come into the database from outside: those that callers named, and those that it told before."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
INSTANTS = {"timestamp", "timestamptz", "date", "time", "timetz"}

# The parameters that are instants, and whose they are.
GIVEN = {
    "services/scheduler/insert_notifications": "due and expiry, as the request has them",
    "services/scheduler/reschedule_notification": "likewise",
    "services/scheduler/list_notifications": "a filter's bounds, as the request has them",
    "services/scheduler/find_pending": "likewise",
    "services/scheduler/find_dead": "likewise",
    "services/scheduler/delete_suppressions": "since when, as an operator who takes them away named it",
    "services/scheduler/charge_buckets": "counted from the time that look_up_keys read",
    "services/dispatcher/record_results": "when a post was sent: the claim's time and what has passed since",
    "shared/removal/find_dead": "until when, as an operator who purges named it",
}


def statements() -> Iterator[tuple[str, str]]:
    for folder in ("services", "shared"):
        for file in sorted((ROOT / folder).glob("**/sql/*.sql")):
            yield str((file.parent.parent / file.stem).relative_to(ROOT)), file.read_text()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_no_statement_takes_an_instant_but_what_a_caller_named_or_the_database_told(
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    found = set()
    for name, text in statements():
        parameters = (await connection.prepare(text)).get_parameters()
        if any(each.name.removesuffix("[]") in INSTANTS for each in parameters):
            found.add(name)
    assert found == GIVEN.keys()


async def test_a_worker_is_told_spans_and_no_instant_that_it_could_compare_with_its_clock(
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    for name, text in statements():
        if name.startswith("services/worker/"):
            columns = (await connection.prepare(text)).get_attributes()
            assert (name, [each.name for each in columns if each.type.name.strip("[]_") in INSTANTS]) == (name, [])


def test_no_statement_makes_an_instant_of_a_number() -> None:
    assert [name for name, text in statements() if "to_timestamp" in text] == []
