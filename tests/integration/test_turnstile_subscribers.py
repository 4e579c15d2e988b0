"""A subscriber's limit is one over all channels, and what stops one lane holds up none of the others."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from services.worker.admission import Entry
from services.worker.claim import Recipient
from services.worker.turnstile import LOOK_AGAIN
from shared.database import Database
from tests.concurrency.test_turnstile import Racer, serve
from tests.conftest import login
from tests.integration.test_turnstile import HOUR, pass_window
from tests.notifications import Notifications
from tests.recipients import limit

MAIL, TEXT = Recipient("default", "EMAIL subscriber ada"), Recipient("default", "SMS subscriber ada")
LANE = "UPDATE notifyqueue.lanes SET {} WHERE channel = 'SMS'"
WORKER = "UPDATE notifyqueue.workers SET {} WHERE channels = '{{SMS}}'"
STOPPED = (
    LANE.format("paused_at = now(), paused_by = 'key:1', pause_reason = 'a test'"),
    LANE.format("opened_at = now(), cause = '503', probe_at = now(), probe_delay = '1 s'"),
    LANE.format("held_until = now() + interval '1 hour'"),
    WORKER.format("heartbeat_at = now() - interval '1 minute'"),
    WORKER.format("phase = 'DRAINING'"),
)
GOING_ON = """
UPDATE notifyqueue.lanes SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, opened_at = NULL, cause = NULL,
  probe_at = NULL, probe_delay = NULL, held_until = '-infinity';
"""
AFRESH = """
DELETE FROM notifyqueue.workers;
DELETE FROM notifyqueue.notifications;
DELETE FROM notifyqueue.recipient_reservations;
DELETE FROM notifyqueue.recipient_gates;
"""
AFTER = "UPDATE notifyqueue.recipient_gates SET opens_at = opens_at - $1::interval"


class Rig:
    """A worker's two lanes."""

    def __init__(self, database: Database, notifications: Notifications) -> None:
        self.mail, self.text = Racer(database), Racer(database, "SMS")
        self.text.admission = self.mail.admission  # one for all lanes, as in a worker
        self._notifications = notifications

    async def put(self, key: str, *, sms: bool = False, due_in: int = 0) -> UUID:
        where = {"channel": "SMS", "address": "+447700900123"} if sms else {"address": "ada@example.com"}
        columns = {"subscriber": "ada", **where}
        return await self._notifications.insert(key, due_in=timedelta(seconds=due_in), **columns)

    async def turn(self, *racers: Racer) -> list[Entry]:
        claims = [claim for racer in racers for claim in await racer.claim()]
        return [ticket.entry for ticket in await asyncio.gather(*map(self.mail.admission.ask, claims))]

    async def gates(self) -> set[str]:
        rows = await self._notifications.connection.fetch("SELECT limit_key FROM notifyqueue.recipient_gates")
        return {row["limit_key"] for row in rows}


@pytest.fixture
async def rig(database_url: str, notifications: Notifications) -> AsyncIterator[Rig]:
    await serve(notifications, "EMAIL", "SMS")
    async with Database(login(database_url, "worker"), name="test") as database:
        yield Rig(database, notifications)


async def test_what_is_decided_at_once_for_two_lanes_is_decided_by_one_limit(
    notifications: Notifications, rig: Rig
) -> None:
    await limit(notifications, 3, HOUR)
    for number in range(3):
        await rig.put(f"mail {number}")
        await rig.put(f"text {number}", sms=True, due_in=-1)
    entries = await rig.turn(rig.mail, rig.text)
    assert sorted(entry.name for entry in entries) == ["STARTS"] * 3 + ["WAITS"] * 3
    assert await rig.gates() == {MAIL.limit_key}  # the texts were due before
    await rig.put("one more", sms=True)
    assert await rig.turn(rig.text) == [Entry.WAITS]
    assert await rig.gates() == {MAIL.limit_key, TEXT.limit_key}
    # Whoever gives a slot back, or leaves one, has both looked at.
    await notifications.connection.execute(
        "UPDATE notifyqueue.recipient_gates SET opens_at = now() + interval '1 hour'"
    )
    await rig.mail.turnstile.look_at_gate(MAIL)
    due = "SELECT bool_and(opens_at <= now()) FROM notifyqueue.recipient_gates"
    assert await notifications.connection.fetchval(due)
    # By address she is another recipient.
    await notifications.insert("by address", address="ada@example.com")
    assert await rig.turn(rig.mail) == [Entry.STARTS]


async def test_who_waits_in_one_lane_holds_up_nobody_in_another(notifications: Notifications, rig: Rig) -> None:
    await limit(notifications, 1, HOUR)
    await rig.put("first")
    assert await rig.turn(rig.mail) == [Entry.STARTS]
    waits = await rig.put("text", sms=True)
    assert await rig.turn(rig.text) == [Entry.WAITS]
    await pass_window(notifications)
    await rig.put("second")
    assert await rig.turn(rig.mail) == [Entry.STARTS]  # nobody has opened the other lane's gate
    assert await rig.text.gates.open(64) == 0
    await pass_window(notifications)
    assert await rig.text.gates.open(64) == 1
    await rig.put("third")
    assert await rig.turn(rig.mail) == [Entry.WAITS]  # the slot is the text's, whose lane goes on
    assert await rig.turn(rig.text) == [Entry.STARTS]
    assert (await notifications.get(waits))["started_at"]


async def test_no_slot_is_kept_in_a_lane_that_has_stopped(notifications: Notifications, rig: Rig) -> None:
    for stopped in STOPPED:
        await notifications.connection.execute(AFRESH)
        await serve(notifications, "EMAIL", "SMS")
        await limit(notifications, 1, HOUR)
        await rig.put("first")
        assert await rig.turn(rig.mail) == [Entry.STARTS]
        text = await rig.put("text", sms=True)
        assert await rig.turn(rig.text) == [Entry.WAITS]
        await pass_window(notifications)
        assert await rig.text.gates.open(64) == 1
        await notifications.connection.execute(stopped)
        await rig.put("second")
        assert await rig.turn(rig.mail) == [Entry.STARTS], stopped
        row = await notifications.get(text)
        assert (row["waiting"], row["granted"], row["status"]) == (True, False, "PENDING")
        assert await rig.text.gates.open(64) == 0  # the slot is taken, really
        await notifications.connection.execute(GOING_ON)
        await pass_window(notifications)
        assert await rig.text.gates.open(64) == 1
        assert await rig.turn(rig.text) == [Entry.STARTS]


async def test_a_lane_that_stops_with_a_slot_kept_holds_up_no_other_for_a_window(
    notifications: Notifications, rig: Rig
) -> None:
    for stopped in STOPPED:
        await notifications.connection.execute(AFRESH)
        await serve(notifications, "EMAIL", "SMS")
        await limit(notifications, 1, HOUR)
        await rig.put("first")
        assert await rig.turn(rig.mail) == [Entry.STARTS]
        await rig.put("second")
        text = await rig.put("text", sms=True)
        assert await rig.turn(rig.mail, rig.text) == [Entry.WAITS] * 2
        await pass_window(notifications)
        assert await rig.text.gates.open(64) == 1
        assert await rig.mail.gates.open(64) == 0  # the slot is the text's
        await notifications.connection.execute(stopped)
        assert await rig.mail.gates.open(64) == 0  # it is not due
        await notifications.connection.execute(AFTER, LOOK_AGAIN)
        assert await rig.mail.gates.open(64) == 1
        assert await rig.turn(rig.mail) == [Entry.STARTS], stopped
        row = await notifications.get(text)
        assert (row["waiting"], row["granted"], row["status"]) == (True, False, "PENDING")
        await notifications.connection.execute(GOING_ON)
