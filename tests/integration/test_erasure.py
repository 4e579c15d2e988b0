"""Whoever is erased gets nothing more and is found nowhere, and that he opted out goes on to hold."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from notifyqueue.v1 import notification_pb2, recipients_pb2, scheduler_pb2
from services.scheduler import erasure
from services.scheduler.erasure_store import ErasureStatements
from services.scheduler.judging import Candidate, candidate
from services.scheduler.notification import Request
from services.scheduler.store import Store as SchedulerStore
from services.worker.admission import Entry
from services.worker.outcome import Ended, Later
from services.worker.store import Record, Store
from shared.database import Database
from tests.concurrency.test_turnstile import Racer
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.integration.test_get_list_cancel import refused
from tests.integration.test_subscribers import ADA, EMAIL, OPTED_OUT, SMS, Stubs, to_ada
from tests.integration.test_suppressions import claim, reason, schedule
from tests.integration.test_turnstile import HOUR, pass_window
from tests.notifications import Notifications
from tests.recipients import limit
from tests.waiting import eventually

FAULT = Ended(reason="ADDRESS_REJECTED", kind="ATTEMPT_FAILED", code="550", suppresses="BOUNCED")
AGAIN = Later(delay=timedelta(), kind="ATTEMPT_FAILED", code="451")


@pytest.fixture
async def stubs(start_scheduler: StartScheduler, database_url: str, notifications: Notifications) -> Stubs:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    return Stubs(await start_scheduler(database_url))


@pytest.fixture
async def worker(database_url: str) -> AsyncIterator[Store]:
    async with Database(login(database_url, "worker"), name="test", size=1) as database:
        yield Store(database)


async def delete(stubs: Stubs, name: str = "ada") -> recipients_pb2.DeleteSubscriberResponse:
    return await stubs.recipients.DeleteSubscriber(recipients_pb2.DeleteSubscriberRequest(subscriber=name))


async def where(notifications: Notifications, text: str) -> set[str]:
    """The tables that have it, in any column and any case."""
    connection = notifications.connection
    tables = await connection.fetch(
        "SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = 'notifyqueue'::regnamespace"
        " AND c.relkind = 'r'"
    )
    return {
        row["name"]
        for row in tables
        if await connection.fetchval(
            # As a word of its own: ids are random, and have any letters up to f.
            f"SELECT EXISTS (SELECT FROM notifyqueue.{row['name']} AS t WHERE lower(t::text) ~ $1)",
            rf"\m{text}\M",
        )
    }


async def test_of_whoever_is_erased_only_ids_and_what_became_of_them_are_left(
    stubs: Stubs, notifications: Notifications, worker: Store
) -> None:
    await stubs.put(email="old.ada@example.com")
    dead, sent = [(await stubs.schedule(key, category=key)).notification_id for key in ("dead", "sent")]
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'SENT', finished_at = now() WHERE category = 'sent';"
        "UPDATE notifyqueue.notifications SET status = 'DEAD_LETTERED', failure_reason = 'ATTEMPTS_EXHAUSTED',"
        " attempt_count = 5, finished_at = now() WHERE category = 'dead'"
    )
    await stubs.put(**ADA)
    for key in ("fails", "repeats"):
        await stubs.schedule(key)
    held = {claimed.notification_id: claimed for claimed in await claim(worker)}
    await stubs.schedule("pending")
    later = await stubs.schedule("later", sms={"text": "What only ada may read"}, delay={"seconds": 3600})
    for address in ("old.ada@example.com", "ada@example.com"):
        await stubs.suppress(channel=EMAIL, address=address, category="news")
    assert await where(notifications, "ada@example.com") == {"notifications", "subscribers", "suppressions"}

    with capture_logs() as logs:
        done = await delete(stubs)
    assert (done.erased, done.cancelled, done.in_flight, done.more) == (6, 2, 2, False)
    (line,) = [line for line in logs if line["event"] == "subscriber.deleted"]
    assert "ada" not in str(line)
    for text in ("ada@example.com", "447700900123", "ada"):
        assert await where(notifications, text) == set()
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.notification_contents") == 0
    assert (await refused(delete(stubs)))[1] == "RESOURCE_NOT_FOUND"

    # What there is to see of them, and to do with them.
    cancelled = await stubs.scheduler.GetNotification(
        scheduler_pb2.GetNotificationRequest(notification_id=later.notification_id, include_timeline=True)
    )
    assert (cancelled.notification.address, cancelled.notification.subscriber) == ("", "")
    assert cancelled.notification.status == notification_pb2.Notification.STATUS_CANCELLED
    assert cancelled.notification.timeline[-1].note == erasure.WHY
    assert (await stubs.scheduler.ScheduleNotification(to_ada("pending"))).replayed
    redrive = scheduler_pb2.RedriveNotificationRequest(notification_id=dead)
    assert (await refused(stubs.scheduler.RedriveNotification(redrive)))[1] == "NO_LONGER_SENDABLE"
    assert await notifications.status(UUID(sent)) == "SENT"

    # What a worker had in hand ends as it would, but it is not tried again, and tells nobody the address.
    fails, repeats = held.values()
    await worker.end_unsent([Record(fails, FAULT)])
    await worker.retry_later([Record(repeats, AGAIN)])
    (last,) = await claim(worker)
    assert (last.notification_id, last.content, last.address) == (repeats.notification_id, None, "")
    assert await where(notifications, "ada") == set()
    bounced = await notifications.connection.fetchrow(
        "SELECT s.erased, s.code FROM notifyqueue.suppressions AS s WHERE s.source = 'BOUNCED'"
    )
    assert bounced is not None
    assert tuple(bounced) == (True, "550")


async def test_the_limit_forgets_whoever_is_erased_but_for_one_window(
    stubs: Stubs, notifications: Notifications, database_url: str
) -> None:
    """Two were sent, one of them after it had waited; two are in hand, one of them called up; and two wait."""
    await limit(notifications, 1, HOUR)
    await stubs.put(**ADA)
    for number in range(6):
        await stubs.schedule(str(number))
    async with Database(login(database_url, "worker"), name="test", size=2) as database:
        racer = Racer(database)
        for _ in range(2):
            await racer.turn()
            await pass_window(notifications)
            assert await racer.gates.open(64)
        (called,) = await racer.claim()
        await notifications.connection.execute(
            "UPDATE notifyqueue.notifications SET waiting = false WHERE id = (SELECT min(id::text)::uuid FROM"
            " notifyqueue.notifications WHERE waiting)"
        )
        (newcomer,) = await racer.claim()
        done = await delete(stubs)
        assert (done.erased, done.cancelled, done.in_flight) == (6, 2, 2)
        assert await where(notifications, "ada") == {"recipient_gates", "recipient_reservations"}

        # One of the two finds a slot, the other does not, and would wait: it goes back to be ended.
        entries = [(await racer.admission.ask(claimed)).entry for claimed in (called, newcomer)]
        assert entries == [Entry.STARTS, Entry.WAITS]
        (back,) = await racer.claim()
        assert (back.notification_id, back.content, back.address) == (newcomer.notification_id, None, "")
        assert await where(notifications, "ada") == {"recipient_gates", "recipient_reservations"}
        await pass_window(notifications)
        await racer.gates.open(64)
    assert await where(notifications, "ada") == {"recipient_reservations"}  # which go with their window


async def test_an_opt_out_of_whoever_is_erased_holds_in_every_spelling_and_can_be_taken_back(
    stubs: Stubs, notifications: Notifications, worker: Store
) -> None:
    await stubs.put(**ADA)
    await stubs.scheduler.ScheduleNotification(schedule("before", address="ADA@example.com"))
    await stubs.suppress(channel=EMAIL, address="ada@example.com")
    await stubs.suppress(channel=EMAIL, address="bob@example.com")
    await stubs.suppress(subscriber="ada", channel=SMS)
    for _ in range(2):  # whoever comes back, and goes again
        await delete(stubs)
        await stubs.put(**ADA)
        put = await stubs.suppress(channel=EMAIL, address="ada@example.com")
        assert (put.unchanged, put.suppression.erased, put.suppression.address) == (True, True, "")
        # As by somebody who did not see it.
        await notifications.connection.execute(
            "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source, created_by)"
            " VALUES ('default', 'EMAIL', 'ada@example.com', 'OPTED_OUT', 'key:1')"
        )
    await delete(stubs)
    assert await where(notifications, "ada@example.com") == {"notifications"}  # went to an address, not to her
    assert await where(notifications, "bob@example.com") == {"suppressions"}

    for address in ("Ada@Example.com", "ADA@example.com"):
        assert await reason(stubs.scheduler, schedule("after", address=address)) == "RECIPIENT_OPTED_OUT"
    (before,) = await claim(worker)
    assert before.suppressed_by == ["OPTED_OUT"]
    await stubs.put(**ADA)
    assert await reason(stubs.scheduler, to_ada("mail")) == "RECIPIENT_OPTED_OUT"
    assert await reason(stubs.scheduler, to_ada("text", sms={"text": "Hello"})) == "RECIPIENT_OPTED_OUT"

    by_address = recipients_pb2.ListSuppressionsRequest(channel=EMAIL, address="ADA@example.com")
    (found,) = (await stubs.recipients.ListSuppressions(by_address)).suppressions
    assert (found.erased, found.address, found.source) == (True, "", OPTED_OUT)
    await stubs.lift(channel=EMAIL, address="ada@example.com")
    assert await reason(stubs.scheduler, to_ada("mail")) == ""


async def test_an_opt_out_of_whoever_is_erased_holds_for_what_an_older_version_has_accepted(
    stubs: Stubs, notifications: Notifications, worker: Store
) -> None:
    """It has the address, and nothing that stands for it."""
    await stubs.put(**ADA)
    older = {await notifications.insert(address, address=address) for address in ("ada@example.com", "Ada@example.com")}
    other = await notifications.insert("other", address="bob@example.com")
    for address in ("ada@example.com", "bob@example.com"):
        await stubs.suppress(channel=EMAIL, address=address)
    await delete(stubs)
    assert (await notifications.get(other))["pseudonym"] is None
    claims = {claimed.notification_id: claimed.suppressed_by for claimed in await claim(worker)}
    assert claims == {id_: ["OPTED_OUT"] for id_ in {*older, other}}


async def test_what_is_in_hand_of_whoever_is_erased_is_counted_by_who_opts_out_after(
    stubs: Stubs, notifications: Notifications, worker: Store
) -> None:
    await stubs.put(**ADA)
    await stubs.schedule("mail")
    await stubs.schedule("text", sms={"text": "Hello"})
    (held,) = await claim(worker)
    assert (await delete(stubs)).in_flight == 1
    for address, count in (("Ada@Example.com", 1), ("bob@example.com", 0)):
        assert (await stubs.suppress(channel=EMAIL, address=address)).in_flight.count == count
    await worker.end_unsent([Record(held, FAULT)])
    assert (await stubs.suppress(channel=EMAIL, address="ada@example.com")).in_flight.count == 0


async def test_it_works_in_parts_and_who_is_erased_goes_with_the_last(
    stubs: Stubs, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "PART", 2)
    monkeypatch.setattr(erasure, "LAST_PART", 2)
    await stubs.put(**ADA)
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    theirs = await notifications.insert("theirs", tenant_id="other", subscriber="ada")
    for number in range(5):
        await stubs.schedule(str(number))
    hold = ErasureStatements.hold_subscriber
    came: list[str] = []

    async def late(self: ErasureStatements, tenant: str, name: str) -> erasure.Person | None:
        """More came for her when all seemed to be done."""
        if not came:
            came.extend(("late", "later", "latest"))
            for key in came:
                await stubs.schedule(key)
        return await hold(self, tenant, name)

    monkeypatch.setattr(ErasureStatements, "hold_subscriber", late)
    done = await delete(stubs)
    assert (done.erased, done.cancelled, done.more) == (8, 8, False)
    assert await notifications.statuses() == {"CANCELLED": 8, "PENDING": 1}
    assert (await notifications.get(theirs))["address"]

    await stubs.put(**ADA)
    for number in range(3):
        await stubs.schedule(f"again {number}")
    erase = erasure.Erasure.erase

    async def hurried(self: erasure.Erasure, tenant: str, name: str, actor: str, **_: object) -> erasure.Report:
        return await erase(self, tenant, name, actor, has_time=lambda: False)

    monkeypatch.setattr(erasure.Erasure, "erase", hurried)
    first = await delete(stubs)
    assert (first.erased, first.more) == (2, True)
    get = recipients_pb2.GetSubscriberRequest(subscriber="ada")
    assert (await stubs.recipients.GetSubscriber(get)).subscriber.email
    rest = [await delete(stubs)]
    while rest[-1].more:
        rest.append(await delete(stubs))
    assert sum(answer.erased for answer in rest) == 1


# Accepted while it is under way.


@pytest.fixture
async def scheduling(database_url: str) -> AsyncIterator[Database]:
    async with Database(login(database_url, "scheduler"), name="test", size=1) as database:
        yield database


def to(person: UUID) -> Candidate:
    """As it was read."""
    said: Mapping[str, object] = {"text": "Hello"}
    plain = Request("default", "a", "SMS", "+447700900123", said, 2, None, None, False, "", None, {})
    return candidate(replace(plain, subscriber="ada", person=person))


async def waits_or_ended(call: "asyncio.Future[Any]", notifications: Notifications) -> bool:
    """It waits for a lock. Or there was none to wait for, which shows in what it answered."""
    waits = await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(waits) or call.done()


async def test_what_is_written_while_he_is_erased_is_erased(
    stubs: Stubs, notifications: Notifications, scheduling: Database
) -> None:
    await stubs.put(**ADA)
    person = await notifications.connection.fetchval("SELECT id FROM notifyqueue.subscribers")
    async with scheduling.transaction() as connection:
        assert await SchedulerStore(connection).insert_notifications([to(person)], 5)
        deleted = asyncio.ensure_future(delete(stubs))
        await eventually(lambda: waits_or_ended(deleted, notifications))
    assert (await deleted).cancelled == 1
    assert await where(notifications, "447700900123") == set()


async def test_what_comes_once_he_is_held_finds_nobody(
    stubs: Stubs, notifications: Notifications, scheduling: Database
) -> None:
    await stubs.put(**ADA)
    async with scheduling.transaction() as connection:
        store = ErasureStatements(connection)
        held = await store.hold_subscriber("default", "ada")
        assert held is not None
        accepted = asyncio.ensure_future(reason(stubs.scheduler, to_ada("a")))
        await eventually(lambda: waits_or_ended(accepted, notifications))
        await store.delete_subscriber(held.id)
    assert await accepted == "RESOURCE_NOT_FOUND"
    assert await notifications.statuses() == {}
    # Nor does what was asked of the one go to another of the same name.
    await stubs.put(email="other.ada@example.com")
    assert await SchedulerStore(scheduling).insert_notifications([to(held.id)], 5) == {}


async def test_of_many_that_come_meanwhile_each_is_erased_or_refused(
    stubs: Stubs, notifications: Notifications, worker: Store
) -> None:
    await stubs.put(**ADA)
    await stubs.suppress(channel=EMAIL, address="ada@example.com", category="news")
    answered = asyncio.Event()

    async def caller(number: int) -> None:
        for turn in range(1_000):
            by_address = schedule(f"{number} {turn} news", address="Ada@example.com", category="news")
            assert await reason(stubs.scheduler, by_address) == "RECIPIENT_OPTED_OUT"
            match await reason(stubs.scheduler, to_ada(f"{number} {turn}")):
                case "RESOURCE_NOT_FOUND":
                    return
                case refusal:
                    assert not refusal
        raise AssertionError("nobody was erased")

    async def claimer() -> None:
        while not answered.is_set():
            await claim(worker)
            await asyncio.sleep(0)

    async def eraser() -> recipients_pb2.DeleteSubscriberResponse:
        count = "SELECT count(*) > 20 FROM notifyqueue.notifications"
        await eventually(lambda: notifications.connection.fetchval(count))
        found = await delete(stubs)
        answered.set()
        return found

    others = asyncio.gather(claimer(), *(caller(number) for number in range(6)))
    done = await eraser()
    await others
    statuses = await notifications.statuses()
    assert statuses == {
        status: count for status, count in (("CANCELLED", done.cancelled), ("PROCESSING", done.in_flight)) if count
    }
    assert await where(notifications, "ada") == set()
    assert await claim(worker) == []
