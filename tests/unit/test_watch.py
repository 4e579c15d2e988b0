"""What watchers are told by the hub, which looks as often as a test says."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from services.scheduler.notification import Notification
from services.scheduler.watch import Hub
from shared.errors import ResourceNotFound, ServerDraining
from shared.lifecycle import TERMINAL
from tests.waiting import settled

NOW = datetime(2027, 3, 1, tzinfo=UTC)
FIRST = Notification(
    id=UUID(int=1),
    idempotency_key="order-1",
    channel="EMAIL",
    address="someone@example.com",
    priority=2,
    status="PENDING",
    due_at=NOW,
    next_attempt_at=NOW,
    expire_at=None,
    max_attempts=5,
    at_most_once=False,
    category="",
    reference=None,
    labels={},
    created_at=NOW,
)

Stream = AsyncGenerator[Notification, None]


class Table:
    """The rows, and what was asked about them."""

    def __init__(self) -> None:
        self.rows = {FIRST.id: FIRST}
        self.asked: list[Sequence[tuple[UUID, int]]] = []

    def change(self, status: str, notification_id: UUID = FIRST.id) -> Notification:
        row = self.rows[notification_id]
        self.rows[notification_id] = replace(row, status=status, revision=row.revision + 1)
        return self.rows[notification_id]

    async def read_changed(self, known: Sequence[tuple[UUID, int]]) -> Mapping[UUID, Notification | None]:
        self.asked.append(known)
        found = {id_: self.rows.get(id_) for id_, _ in known}
        return {id_: found[id_] for id_, revision in known if (row := found[id_]) is None or row.revision != revision}


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def hub(table: Table) -> Hub:
    return Hub(table)


async def first(stream: Stream) -> Notification:
    """Of what is still to come."""
    async with asyncio.timeout(20):
        return await anext(stream)


async def nothing(stream: Stream) -> bool:
    """Whether it waits. Then it has ended, too."""
    waiting = asyncio.create_task(first(stream))
    await settled()
    if waiting.done():
        return False
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return True


async def test_what_looks_as_it_did_is_no_news_and_the_next_change_is(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        assert await first(stream) == FIRST
        waiting = asyncio.create_task(first(stream))
        for status in ("PROCESSING", "PENDING"):  # between two looks
            table.change(status)
        await hub.look()
        await settled()
        assert not waiting.done()
        claimed = table.change("PROCESSING")
        await hub.look()
        assert await waiting == claimed
        assert claimed.revision == 4


async def test_it_begins_with_what_is_and_tells_every_change_until_the_end(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        assert await first(stream) == FIRST
        for status in ("PROCESSING", "PENDING", "PROCESSING", "SENT"):
            changed = table.change(status)
            await hub.look()
            assert await first(stream) == changed
        with pytest.raises(StopAsyncIteration):
            await first(stream)
    assert hub.watchers == 0


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_of_what_has_ended_it_tells_only_that(table: Table, hub: Hub, status: str) -> None:
    ended = table.change(status)
    assert [found async for found in hub.watch(ended)] == [ended]
    assert hub.watchers == 0


async def test_what_did_not_change_is_not_told(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        await first(stream)
        for _ in range(3):
            await hub.look()
        assert await nothing(stream)


async def test_who_reads_slowly_is_told_only_what_is_current(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        await first(stream)
        for status in ("PROCESSING", "PENDING", "PROCESSING"):
            last = table.change(status)
            await hub.look()
        assert await first(stream) == last


async def test_a_change_between_the_reading_and_the_watching_is_told(table: Table, hub: Hub) -> None:
    changed = table.change("PROCESSING")
    async with aclosing(hub.watch(FIRST)) as stream:
        await first(stream)
        await hub.look()
        assert await first(stream) == changed


async def test_who_comes_with_old_news_is_told_what_the_others_know(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as early, aclosing(hub.watch(FIRST)) as late:
        await first(early)
        changed = table.change("PROCESSING")
        await hub.look()
        assert await first(early) == changed
        await first(late)
        await hub.look()
        assert await first(late) == changed
        assert await nothing(early)  # it knows that


async def test_who_comes_with_newer_news_is_never_told_older(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as early:
        await first(early)
        newer = replace(table.rows[FIRST.id], status="PROCESSING", attempt_count=2, revision=3)
        async with aclosing(hub.watch(newer)) as late:
            assert await first(late) == newer
            table.change("PROCESSING")  # revision 2: what a look that began before `newer` was read finds
            await hub.look()
            assert (await first(early)).revision == 2
            assert await nothing(late)


async def test_how_it_ended_is_told_whatever_comes_before_that_is_read(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        await first(stream)
        dead = table.change("DEAD_LETTERED")
        await hub.look()
        table.change("PENDING")  # redriven
        await hub.look()
        assert await first(stream) == dead


async def test_a_thousand_watchers_are_one_question(table: Table, hub: Hub) -> None:
    ids = [UUID(int=number) for number in range(1, 1_001)]
    table.rows = {id_: replace(FIRST, id=id_) for id_ in ids}
    streams = [hub.watch(table.rows[id_]) for id_ in reversed(ids)] + [hub.watch(table.rows[ids[0]])]
    for stream in streams:
        await first(stream)
    await hub.look()
    assert table.asked == [[(id_, 1) for id_ in ids]]  # in one order, and nothing twice
    for stream in streams:
        await stream.aclose()
    assert (hub.watchers, await hub.look(), len(table.asked)) == (0, None, 1)


async def test_what_was_removed_is_not_found(table: Table, hub: Hub) -> None:
    async with aclosing(hub.watch(FIRST)) as stream:
        await first(stream)
        table.rows.clear()
        await hub.look()
        with pytest.raises(ResourceNotFound):
            await first(stream)
    assert hub.watchers == 0


async def test_leaving_ends_the_streams_for_others_to_serve_them(table: Table) -> None:
    hub = Hub(table, tick=3600)
    async with aclosing(hub.watch(FIRST)) as stream, aclosing(hub.watch(FIRST)) as late:
        async with hub:
            await first(stream)
            waiting = asyncio.create_task(first(stream))
            await settled()
        with pytest.raises(ServerDraining):
            await waiting
        with pytest.raises(ServerDraining):
            await first(late)
    assert hub.watchers == 0


async def test_whoever_comes_first_is_looked_for_at_once(table: Table) -> None:
    async with Hub(table, tick=3600) as hub:
        await settled()
        assert not table.asked
        changed = table.change("PROCESSING")
        async with aclosing(hub.watch(FIRST)) as stream:
            await first(stream)
            assert await first(stream) == changed
