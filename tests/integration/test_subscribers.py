"""People whom notifications name: kept, sent to at the address they have when it is accepted, and not sent to."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc.aio
import pytest

from notifyqueue.v1 import (
    notification_pb2,
    recipients_pb2,
    recipients_pb2_grpc,
    scheduler_pb2,
    scheduler_pb2_grpc,
    templates_pb2_grpc,
)
from services.worker.store import Store
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.integration.test_get_list_cancel import refused
from tests.integration.test_suppressions import claim, reason, schedule
from tests.notifications import Notifications
from tests.templates import put as template
from tests.templates import templated

EMAIL, SMS, PUSH = notification_pb2.CHANNEL_EMAIL, notification_pb2.CHANNEL_SMS, notification_pb2.CHANNEL_PUSH
OPTED_OUT, BOUNCED = 1, 2
ADA = {"email": "Ada@Example.com", "phone": "07700 900 123", "locale": "de-at", "time_zone": "Europe/Vienna"}


class Stubs:
    """The services of one process."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
        self.recipients = recipients_pb2_grpc.RecipientsStub(channel)
        self.templates = templates_pb2_grpc.TemplatesStub(channel)

    async def put(self, name: str = "ada", **fields: str) -> recipients_pb2.PutSubscriberResponse:
        request = recipients_pb2.PutSubscriberRequest(subscriber=name, **fields)
        return await self.recipients.PutSubscriber(request)

    async def listed(self, **fields: Any) -> tuple[list[str], str]:
        page = await self.recipients.ListSubscribers(recipients_pb2.ListSubscribersRequest(**fields))
        return [found.subscriber for found in page.subscribers], page.next_page_token

    async def schedule(self, key: str, **fields: Any) -> notification_pb2.Notification:
        return (await self.scheduler.ScheduleNotification(to_ada(key, **fields))).notification

    async def suppress(self, **fields: Any) -> recipients_pb2.PutSuppressionResponse:
        request = recipients_pb2.PutSuppressionRequest(**{"source": OPTED_OUT, **fields})
        return await self.recipients.PutSuppression(request)

    async def lift(self, **fields: Any) -> None:
        await self.recipients.DeleteSuppression(
            recipients_pb2.DeleteSuppressionRequest(**{"source": OPTED_OUT, **fields})
        )


@pytest.fixture
async def stubs(start_scheduler: StartScheduler, database_url: str, notifications: Notifications) -> Stubs:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    return Stubs(await start_scheduler(database_url))


def to_ada(key: str, **fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    asked: dict[str, Any] = {"subscriber": "ada", **fields}
    if asked.keys().isdisjoint({"email", "sms", "push", "template"}):
        asked["email"] = {"subject": "Hello", "text": "How are you?"}
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, **asked)


# Keeping them.


async def test_the_life_of_a_subscriber(stubs: Stubs, notifications: Notifications) -> None:
    put = await stubs.put(**ADA)
    assert (put.unchanged, put.subscriber.email, put.subscriber.phone) == (False, "Ada@example.com", "+447700900123")
    assert (put.subscriber.locale, put.subscriber.time_zone) == ("de-AT", "Europe/Vienna")
    again = await stubs.put(**ADA | {"email": "Ada@EXAMPLE.com"})
    assert (again.unchanged, again.subscriber) == (True, put.subscriber)
    fewer = await stubs.put(phone="+44 7700 900124")
    assert (fewer.unchanged, fewer.subscriber.email, fewer.subscriber.locale) == (False, "", "")
    assert fewer.subscriber.create_time == put.subscriber.create_time
    assert fewer.subscriber.update_time.ToDatetime() > put.subscriber.update_time.ToDatetime()
    get = recipients_pb2.GetSubscriberRequest(subscriber="ada")
    assert (await stubs.recipients.GetSubscriber(get)).subscriber == fewer.subscriber
    missing = recipients_pb2.GetSubscriberRequest(subscriber="bob")
    _, wrong, metadata = await refused(stubs.recipients.GetSubscriber(missing))
    assert (wrong, metadata) == ("RESOURCE_NOT_FOUND", {"resource": "subscriber"})
    # The tenant's own.
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.tenants (id) VALUES ('other');"
        "UPDATE notifyqueue.tenants SET region = NULL;"
        "UPDATE notifyqueue.subscribers SET tenant_id = 'other'"
    )
    assert (await refused(stubs.recipients.GetSubscriber(get)))[1] == "RESOURCE_NOT_FOUND"
    assert await stubs.listed() == ([], "")
    _, wrong, _ = await refused(stubs.put(phone="07700 900123"))
    assert wrong == "REQUEST_INVALID"


async def test_many_that_put_one_at_once_make_one(stubs: Stubs, notifications: Notifications) -> None:
    answers = await asyncio.gather(*(stubs.put(email="ada@example.com") for _ in range(20)))
    assert [answer.unchanged for answer in answers].count(False) == 1
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.subscribers") == 1


async def test_lists_have_pages_and_find_an_address_in_every_spelling(stubs: Stubs) -> None:
    for number in range(3):
        await stubs.put(f"s{number}", email=f"S{number}@example.com", phone="+447700900123", push=f"T{number}")
    first, token = await stubs.listed(page_size=2)
    rest, end = await stubs.listed(page_size=2, page_token=token)
    assert (first, rest, end) == (["s2", "s1"], ["s0"], "")
    assert await stubs.listed(channel=EMAIL, address="s1@EXAMPLE.com") == (["s1"], "")
    assert await stubs.listed(channel=PUSH, address="t1") == ([], "")
    some, token = await stubs.listed(channel=SMS, address="07700 900 123", page_size=2)
    assert some == ["s2", "s1"]
    assert (await stubs.listed(channel=SMS, address="07700 900 123", page_size=2, page_token=token))[0] == ["s0"]
    _, wrong, _ = await refused(stubs.listed(channel=SMS, address="+447700900123", page_token=token))
    assert wrong == "PAGE_TOKEN_INVALID"


# Sending to them.


async def test_it_goes_to_the_address_that_he_has_when_it_is_accepted(
    stubs: Stubs, notifications: Notifications
) -> None:
    assert await reason(stubs.scheduler, to_ada("a")) == "RESOURCE_NOT_FOUND"
    await stubs.put(**ADA)
    assert await reason(stubs.scheduler, to_ada("push", push={"title": "Hello"})) == "ADDRESS_MISSING"
    assert await notifications.statuses() == {}
    mail = await stubs.schedule("a")
    text = await stubs.schedule("b", sms={"text": "Hello"})
    assert (mail.address, mail.subscriber, mail.channel) == ("Ada@example.com", "ada", EMAIL)
    assert (text.address, text.subscriber, text.channel) == ("+447700900123", "ada", SMS)
    plain = await stubs.scheduler.ScheduleNotification(schedule("c", address="ada@example.com"))
    assert plain.notification.subscriber == ""
    # A replay is answered before anybody asks who she is, and it is the same request wherever she has moved.
    await stubs.put(email="new@example.com")
    again = await stubs.scheduler.ScheduleNotification(to_ada("a"))
    assert (again.replayed, again.notification) == (True, mail)
    await notifications.connection.execute("DELETE FROM notifyqueue.subscribers")
    assert (await stubs.scheduler.ScheduleNotification(to_ada("a"))).replayed
    assert await reason(stubs.scheduler, to_ada("a", subscriber="bob")) == "IDEMPOTENCY_KEY_REUSED"

    async def listed(**filter_: Any) -> Sequence[str]:
        request = scheduler_pb2.ListNotificationsRequest(filter=filter_)  # type: ignore[arg-type]
        found = (await stubs.scheduler.ListNotifications(request)).notifications
        assert {one.subscriber for one in found} <= {"ada"}
        return [one.idempotency_key for one in found]

    assert await listed(subscriber="ada") == ["b", "a"]
    assert await listed(subscriber="ada", channel=SMS) == ["b"]
    assert await listed(subscriber="bob") == []
    hers = notification_pb2.NotificationFilter(subscriber="ada")
    by_name = scheduler_pb2.BulkCancelNotificationsRequest(filter=hers)
    assert (await stubs.scheduler.BulkCancelNotifications(by_name)).cancelled == 2


async def test_a_template_speaks_his_language_where_the_request_names_none(
    stubs: Stubs, notifications: Notifications
) -> None:
    await stubs.put(**ADA)
    said: dict[str, Any] = {
        "en": {"email": {"subject": "Hello", "text": "Hello"}},
        "de": {"email": {"subject": "Servus", "text": "a"}},
    }
    await stubs.templates.PutTemplate(template(**said))
    for key, fields in (("hers", {}), ("named", {"locale": "en"})):
        request = templated(key, **fields)
        request.subscriber = "ada"
        accepted = (await stubs.scheduler.ScheduleNotification(request)).notification
        assert (accepted.template_version, accepted.address) == (1, "Ada@example.com")
    rows = await notifications.connection.fetch(
        "SELECT n.idempotency_key, c.content::json->>'subject' AS subject FROM notifyqueue.notifications AS n"
        " JOIN notifyqueue.notification_contents AS c ON c.notification_id = n.id"
    )
    assert {row["idempotency_key"]: row["subject"] for row in rows} == {"hers": "Servus", "named": "Hello"}


# Not sending to them.


async def test_who_is_suppressed_by_name_gets_nothing_at_any_address(
    stubs: Stubs, notifications: Notifications, database_url: str
) -> None:
    await stubs.put(**ADA)
    await stubs.schedule("mail")
    await stubs.schedule("text", sms={"text": "Hello"})
    await stubs.schedule("news", category="news")
    put = await stubs.suppress(subscriber="ada", category="news")
    assert (put.suppression.subscriber, put.suppression.channel, put.suppression.address) == ("ada", 0, "")
    assert await reason(stubs.scheduler, to_ada("a", category="news")) == "RECIPIENT_OPTED_OUT"
    assert await reason(stubs.scheduler, to_ada("b", category="other")) == ""
    await stubs.suppress(subscriber="ada", channel=SMS, source=BOUNCED)
    assert await reason(stubs.scheduler, to_ada("c", sms={"text": "Hello"})) == "ADDRESS_SUPPRESSED"
    assert await reason(stubs.scheduler, to_ada("d")) == ""
    # By name, and not by whatever address that may have.
    assert await reason(stubs.scheduler, schedule("e", address="Ada@example.com", category="news")) == ""
    async with Database(login(database_url, "worker"), name="test", size=1) as worker:
        claimed = {one.notification_id: one.suppressed_by for one in await claim(Store(worker))}
        keys = await notifications.connection.fetch("SELECT id, idempotency_key FROM notifyqueue.notifications")
        assert {row["idempotency_key"]: claimed[row["id"]] for row in keys if row["id"] in claimed} == {
            **{key: [] for key in ("mail", "b", "d", "e")},
            "news": ["OPTED_OUT"],
        }
    assert (await stubs.suppress(subscriber="ada")).in_flight.count == 4  # and not what goes to the address
    assert (await stubs.suppress(subscriber="ada", category="news")).unchanged
    assert (await stubs.suppress(channel=EMAIL, address="ADA@example.com")).in_flight.count == 5

    page = await stubs.recipients.ListSuppressions(recipients_pb2.ListSuppressionsRequest(subscriber="ada"))
    assert [(one.channel, one.category, one.source) for one in page.suppressions] == [
        (0, "", OPTED_OUT),
        (SMS, "", BOUNCED),
        (0, "news", OPTED_OUT),
    ]
    told: Sequence[dict[str, Any]] = ({}, {"category": "news"}, {"channel": SMS, "source": BOUNCED})
    for fields in told:
        await stubs.lift(subscriber="ada", **fields)
        assert (await refused(stubs.lift(subscriber="ada", **fields)))[1] == "RESOURCE_NOT_FOUND"
    await stubs.lift(channel=EMAIL, address="ada@example.com")
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.suppressions") == 0


async def test_whose_address_is_suppressed_gets_nothing_by_name_either(stubs: Stubs) -> None:
    await stubs.put(**ADA)
    await stubs.suppress(channel=EMAIL, address="ada@example.com")
    await stubs.suppress(channel=SMS, address="+447700900123", source=BOUNCED)
    assert await reason(stubs.scheduler, to_ada("a")) == "RECIPIENT_OPTED_OUT"
    assert await reason(stubs.scheduler, to_ada("b", sms={"text": "Hello"})) == "ADDRESS_SUPPRESSED"
