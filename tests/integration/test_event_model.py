"""Exactly one event for each end, on every path, and none without: a machine drives the statements against a model."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shared.database import Database
from tests.conftest import login
from tests.event_machine import MISSED, Events
from tests.event_services import Services


@pytest.fixture
def services(database_url: str) -> Iterator[Services]:
    async def enter() -> Services:
        owner = await asyncpg.connect(database_url)
        stack.push_async_callback(owner.close)
        worker, scheduler = [
            await stack.enter_async_context(Database(login(database_url, name), name="test", size=1))
            for name in ("worker", "scheduler")
        ]
        return Services(runner, owner, worker, scheduler)

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        yield runner.run(enter())
        runner.run(stack.aclose())


def run(services: Services, examples: int, **more: Any) -> None:
    run_state_machine_as_test(
        lambda: Events(services),  # type: ignore[arg-type]  # a factory will do
        # On a busy machine drawing takes long, which is no fault.
        settings=settings(
            max_examples=examples, stateful_step_count=36, suppress_health_check=list(HealthCheck), **more
        ),
    )


def test_each_end_has_exactly_one_event_on_every_path_and_nothing_else_has_one(services: Services) -> None:
    run(services, 25)


WRITES = "SELECT pg_get_functiondef('notifyqueue.write_events'::regproc)"
ENDED = "WHERE n.status NOT IN ('PENDING', 'PROCESSING')\n"
BROKEN = {
    "what expired has none": f"{ENDED} AND n.status <> 'EXPIRED'",
    "a second end has none": f"{ENDED} AND n.redrive_count = 0",
    "of several one has": f"{ENDED} AND n.id = (SELECT max(a.id::text)::uuid FROM after_rows AS a)",
}


def is_caught(services: Services) -> None:
    with pytest.raises(AssertionError, match=MISSED):
        run(services, 50, phases=[Phase.generate], derandomize=True, database=None, report_multiple_bugs=False)


def test_that_nothing_writes_events_is_caught(services: Services) -> None:
    services.run(services.owner.execute("DROP TRIGGER write_events ON notifyqueue.notifications"))
    is_caught(services)


@pytest.mark.parametrize("condition", BROKEN.values(), ids=BROKEN)
def test_that_some_end_has_no_event_is_caught(services: Services, condition: str) -> None:
    function = services.run(services.owner.fetchval(WRITES))
    assert ENDED in function
    services.run(services.owner.execute(function.replace(ENDED, condition)))
    is_caught(services)
