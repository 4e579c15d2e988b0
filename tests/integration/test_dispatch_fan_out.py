"""Fan-out: each event becomes a delivery for each endpoint that is to have it, once, whatever happens beside it."""

import asyncio
import json
from contextlib import AsyncExitStack
from uuid import UUID

import asyncpg
import pytest

from tests.integration.test_dispatcher_rig import NOWHERE, Rig

ALL = ("SENT", "FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED")


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


async def pairs(rig: Rig) -> set[tuple[UUID, UUID]]:
    rows = await rig.fetch("SELECT event_id, endpoint_id FROM notifyqueue.webhook_deliveries")
    found = {(row["event_id"], row["endpoint_id"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_an_event_goes_to_every_endpoint_of_its_tenant_and_to_no_other(rig: Rig) -> None:
    other = await rig.tenant("other")
    mine = [await rig.endpoint(), await rig.endpoint()]
    theirs = await rig.endpoint(tenant=other)
    (event,) = await rig.events(1)
    (their_event,) = await rig.events(1, tenant=other)
    assert await rig.store.fan_out_events() == (2, 3)
    assert await pairs(rig) == {(event, mine[0]), (event, mine[1]), (their_event, theirs)}
    assert await rig.store.fan_out_events() == (0, 0)


async def test_an_endpoint_without_a_filter_gets_all_but_cancelled(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    events = {status: (await rig.events(1, status))[0] for status in ALL}
    await rig.store.fan_out_events()
    assert await pairs(rig) == {(event, endpoint) for status, event in events.items() if status != "CANCELLED"}


async def test_a_filter_is_obeyed(rig: Rig) -> None:
    endpoint = await rig.endpoint(NOWHERE, "notification.cancelled", "notification.dead_lettered")
    events = {status: (await rig.events(1, status))[0] for status in ALL}
    await rig.store.fan_out_events()
    assert await pairs(rig) == {(events["CANCELLED"], endpoint), (events["DEAD_LETTERED"], endpoint)}


async def test_an_endpoint_named_after_the_event_does_not_get_it(rig: Rig) -> None:
    await rig.events(1)
    await rig.endpoint(age="-1 second")
    assert await rig.store.fan_out_events() == (1, 0)


async def test_a_disabled_or_deleted_endpoint_gets_nothing(rig: Rig) -> None:
    gone, deleted = await rig.endpoint(), await rig.endpoint()
    await rig.execute(
        "UPDATE notifyqueue.webhook_endpoints SET enabled = false, disabled_reason = 'GONE' WHERE id = $1", gone
    )
    await rig.store.delete_endpoint("default", deleted)
    await rig.events(1)
    assert await rig.store.fan_out_events() == (1, 0)


async def test_an_event_that_commits_late_with_a_lower_id_is_not_passed_over(rig: Rig) -> None:
    endpoint = await rig.endpoint()
    late = await asyncpg.connect(rig.url)
    transaction = late.transaction()
    await transaction.start()
    lower = await late.fetchval(
        """
        INSERT INTO notifyqueue.webhook_events (
          notification_id, tenant_id, status, redrive_count, attempt_count, channel, labels, occurred_at)
        VALUES (gen_random_uuid(), 'default', 'SENT', 0, 1, 'EMAIL', '{}', now()) RETURNING id
        """
    )
    (higher,) = await rig.events(1)
    assert lower < higher
    await rig.store.fan_out_events()
    assert await pairs(rig) == {(higher, endpoint)}
    await transaction.commit()
    await late.close()
    await rig.store.fan_out_events()
    assert await pairs(rig) == {(higher, endpoint), (lower, endpoint)}


async def test_many_at_once_write_each_delivery_once(rig: Rig) -> None:
    endpoints = [await rig.endpoint() for _ in range(3)]
    events = await rig.events(2_000)

    async def work() -> int:
        done = 0
        while fanned := (await rig.store.fan_out_events())[0]:
            done += fanned
        return done

    counts = await asyncio.gather(*(work() for _ in range(8)))
    assert sum(counts) == len(events)
    assert await pairs(rig) == {(event, endpoint) for event in events for endpoint in endpoints}


async def test_at_most_500_events_are_taken_at_once(rig: Rig) -> None:
    await rig.endpoint()
    await rig.events(501)
    assert await rig.store.fan_out_events() == (500, 500)
    assert await rig.store.fan_out_events() == (1, 1)


async def test_the_endpoint_becomes_due_and_stays_so_if_it_was(rig: Rig) -> None:
    fresh, due = await rig.endpoint(), await rig.endpoint(NOWHERE, "notification.sent")
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET next_due_at = '2000-01-01' WHERE id = $1", due)
    await rig.events(1)
    await rig.store.fan_out_events()
    assert await rig.value("SELECT next_due_at <= now() FROM notifyqueue.webhook_endpoints WHERE id = $1", fresh)
    assert (await rig.stored_endpoint(due))["next_due_at"].year == 2000


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_the_body_has_every_fact_in_one_order_and_nothing_else(rig: Rig) -> None:
    await rig.endpoint()
    (event,) = await rig.events(
        1,
        "FAILED",
        failure_reason="MESSAGE_REJECTED",
        reference='order "7" \u2028 ü',
    )
    await rig.execute(
        """
        UPDATE notifyqueue.webhook_events
        SET labels = '{"b": "1e308", "a": "\\u00e9"}', occurred_at = '2025-11-30 17:53:20.000001+07', attempt_count = 3
        """
    )
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET created_at = '2025-01-01'")
    await rig.store.fan_out_events()
    (row,) = await rig.fetch("SELECT notification_id, body FROM notifyqueue.webhook_events")
    facts = {
        "event_id": str(event),
        "notification_id": str(row["notification_id"]),
        "status": "FAILED",
        "attempt_count": 3,
        "channel": "EMAIL",
        "failure_reason": "MESSAGE_REJECTED",
        "reference": 'order "7" \u2028 ü',
        "labels": {"a": "é", "b": "1e308"},
    }
    whole = {"type": "notification.failed", "timestamp": "2025-11-30T10:53:20.000001Z", "data": facts}
    written = json.loads(row["body"])
    assert written == whole
    assert [*written, *written["data"]] == [*whole, *facts]
    assert row["body"].startswith(b'{"type":"notification.failed","timestamp":"2025-11-30T10:53:20.000001Z","data":{"')


async def test_no_body_is_written_that_nobody_wants(rig: Rig) -> None:
    await rig.endpoint(NOWHERE, "notification.failed")
    await rig.events(1, "SENT")
    await rig.events(1, "FAILED")
    await rig.store.fan_out_events()
    rows = await rig.fetch("SELECT status, body IS NOT NULL AS written FROM notifyqueue.webhook_events")
    assert {row["status"]: row["written"] for row in rows} == {"SENT": False, "FAILED": True}
