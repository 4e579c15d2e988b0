"""Whatever is wrong with a request is refused by the names of its fields, and nothing is written."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from shared.paging import Pages
from tests.integration.conftest import SECRET, StartScheduler
from tests.notifications import Notifications

ID = "0191d4f5-7c6e-7abc-8def-0123456789ab"
UNKNOWN_FIELD = b"\xf8\x07\x01"  # number 127, a varint
DAY = timedelta(days=1)

EMAIL, SMS = notification_pb2.CHANNEL_EMAIL, notification_pb2.CHANNEL_SMS

Make = Callable[[], Message]


@dataclass(frozen=True, slots=True)
class Refusal:
    code: grpc.StatusCode
    reason: str
    fields: tuple[str, ...]
    """Those of the BadRequest."""


async def refusal(call: Awaitable[object]) -> Refusal | None:
    """None: it was not refused."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return read_refusal(error.code(), dict(error.trailing_metadata()))
    return None


def read_refusal(code: grpc.StatusCode, trailers: Mapping[str, str | bytes]) -> Refusal:
    status = status_pb2.Status.FromString(bytes(trailers["grpc-status-details-bin"]))  # type: ignore[arg-type]
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    assert info.reason == trailers["error-reason"]
    return Refusal(code, info.reason, tuple(violation.field for violation in bad.field_violations))


def invalid(*fields: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", fields)


TOKEN_INVALID = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", ())


@asynccontextmanager
async def nothing_written(connection: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator[None]:
    before = await rows_of_all_tables(connection)
    yield
    assert await rows_of_all_tables(connection) == before


async def rows_of_all_tables(connection: "asyncpg.Connection[asyncpg.Record]") -> Mapping[str, int]:
    tables = await connection.fetch("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'notifyqueue'")
    return {table: await connection.fetchval(f"SELECT count(*) FROM notifyqueue.{table}") for (table,) in tables}


def mail(**parts: Any) -> notification_pb2.EmailContent:
    return notification_pb2.EmailContent(**{"subject": "Hello", "text": "How are you?"} | parts)


def schedule(**fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    least: dict[str, Any] = {"idempotency_key": "order-1", "address": "someone@example.com"}
    if not fields.keys() & {"email", "sms", "push", "template"}:
        least["email"] = mail()
    return scheduler_pb2.ScheduleNotificationRequest(**least | fields)


def unknown(message: Message) -> Any:
    """The message with a field that this version does not have."""
    message.MergeFromString(UNKNOWN_FIELD)
    return message


def ahead(span: timedelta) -> datetime:
    return datetime.now(UTC) + span


def filtered(**fields: Any) -> scheduler_pb2.ListNotificationsRequest:
    return scheduler_pb2.ListNotificationsRequest(filter=notification_pb2.NotificationFilter(**fields))


def unknown_filter() -> scheduler_pb2.ListNotificationsRequest:
    return scheduler_pb2.ListNotificationsRequest(filter=unknown(notification_pb2.NotificationFilter()))


get, cancel = scheduler_pb2.GetNotificationRequest, scheduler_pb2.CancelNotificationRequest


def reschedule(**fields: Any) -> scheduler_pb2.RescheduleNotificationRequest:
    return scheduler_pb2.RescheduleNotificationRequest(**fields)


def bulk_cancel(**fields: Any) -> scheduler_pb2.BulkCancelNotificationsRequest:
    return scheduler_pb2.BulkCancelNotificationsRequest(**fields)


def batched(*requests: scheduler_pb2.ScheduleNotificationRequest) -> scheduler_pb2.BatchScheduleNotificationsRequest:
    return scheduler_pb2.BatchScheduleNotificationsRequest(requests=requests)


def text(**fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    return schedule(**{"address": "+447700900123", "sms": {"text": "Hello"}} | fields)


def push(**fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    return schedule(**{"address": "token", "push": {"title": "Hello"}} | fields)


# What is wrong -> the fields that are named, and how the request is made: times are those of when it is sent.
Cases = Mapping[str, tuple[tuple[str, ...], Make]]

SHAPES: Cases = {
    "NUL in the key": (("idempotency_key",), lambda: schedule(idempotency_key="a\0b")),
    "NUL in the address": (("address",), lambda: schedule(address="some\0one@example.com")),
    "NUL in the subject": (("email.subject",), lambda: schedule(email=mail(subject="\0"))),
    "NUL in the text": (("email.text",), lambda: schedule(email=mail(text="\0"))),
    "NUL in the html": (("email.html",), lambda: schedule(email=mail(html="\0"))),
    "NUL in a header": (("email.headers",), lambda: schedule(email=mail(headers={"X-A": "\0"}))),
    "NUL in a label's name": (("labels",), lambda: schedule(labels={"\0": ""})),
    "NUL in a label": (("labels",), lambda: schedule(labels={"a": "\0"})),
    "NUL in the category": (("category",), lambda: schedule(category="\0")),
    "NUL in the reference": (("reference",), lambda: schedule(reference="\0")),
    "an unknown priority": (("priority",), lambda: schedule(priority=4)),
    "a negative priority": (("priority",), lambda: schedule(priority=-1)),
    "an unknown field": (("127",), lambda: unknown(schedule())),
    "an unknown field of the mail": (("email.127",), lambda: schedule(email=unknown(mail()))),
    "an unknown field of the due time": (("due_time.127",), lambda: schedule(due_time=unknown(Timestamp(seconds=1)))),
    "a time before the year 1": (("due_time",), lambda: schedule(due_time={"seconds": -62_135_596_801})),
    "a time after the year 9999": (("expire_time",), lambda: schedule(expire_time={"seconds": 253_402_300_800})),
    "a time with negative nanos": (("due_time",), lambda: schedule(due_time={"seconds": 1, "nanos": -1})),
    "a duration with two signs": (("delay",), lambda: schedule(delay={"seconds": 1, "nanos": -1})),
    "a duration of too long": (("ttl",), lambda: schedule(ttl={"seconds": 315_576_000_001})),
    "several at once": (
        ("127", "idempotency_key", "address", "email.127", "email.subject", "priority"),
        lambda: unknown(schedule(idempotency_key="\0", address="\0", email=unknown(mail(subject="\0")), priority=9)),
    ),
}

BOUNDS: Cases = {
    "nothing": (("idempotency_key", "recipient", "content"), scheduler_pb2.ScheduleNotificationRequest),
    "an empty key": (("idempotency_key",), lambda: schedule(idempotency_key="")),
    "a long key": (("idempotency_key",), lambda: schedule(idempotency_key="k" * 256)),
    "an empty address": (("address",), lambda: schedule(address="")),
    "no address": (("address",), lambda: schedule(address="someone")),
    "a long address": (("address",), lambda: schedule(address="a" * 243 + "@example.com")),
    "an empty subject": (("email.subject",), lambda: schedule(email=mail(subject=""))),
    "a long subject": (("email.subject",), lambda: schedule(email=mail(subject="s" * 999))),
    "an empty mail": (("email.subject", "email"), lambda: schedule(email=notification_pb2.EmailContent())),
    "a mail without parts": (("email",), lambda: schedule(email=mail(text=""))),
    "a blank mail": (("email.subject", "email"), lambda: schedule(email=mail(subject=" ", text=" "))),
    "a mail of blank parts": (("email",), lambda: schedule(email=mail(text="\n\t", html="\u200b"))),
    "a mail over 64 KiB": (("email",), lambda: schedule(email=mail(html="é" * 32_768))),
    "a sender that is none": (("email.sender",), lambda: schedule(email=mail(sender="Shop"))),
    "two addresses for answers": (("email.reply_to",), lambda: schedule(email=mail(reply_to="a@x.org, b@x.org"))),
    "a header of the mail itself": (("email.headers",), lambda: schedule(email=mail(headers={"Bcc": "a@x.org"}))),
    "21 headers": (("email.headers",), lambda: schedule(email=mail(headers={f"X-{n}": "" for n in range(21)}))),
    "a header twice": (("email.headers",), lambda: schedule(email=mail(headers={"X-A": "", "x-a": ""}))),
    "a long header": (("email.headers",), lambda: schedule(email=mail(headers={"X-A": "v" * 999}))),
    "a long category": (("category",), lambda: schedule(category="c" * 65)),
    "a long reference": (("reference",), lambda: schedule(reference="r" * 256)),
    "17 labels": (("labels",), lambda: schedule(labels={str(n): "" for n in range(17)})),
    "an empty label": (("labels",), lambda: schedule(labels={"": ""})),
    "a long label": (("labels",), lambda: schedule(labels={"a": "v" * 256})),
    "several at once": (
        ("idempotency_key", "address", "email.subject", "email", "delay", "category"),
        lambda: schedule(idempotency_key="", address="x", email={}, delay=-DAY, category="c" * 65),
    ),
}

CHANNELS: Cases = {
    "a text message to a mail address": (("address",), lambda: text(address="someone@example.com")),
    "a number of no country": (("address",), lambda: text(address="07700900123")),
    "an empty text message": (("sms.text",), lambda: text(sms={})),
    "a long text message": (("sms.text",), lambda: text(sms={"text": "t" * 1_601})),
    "NUL in a text message": (("sms.text",), lambda: text(sms={"text": "\0"})),
    "a token with a space": (("address",), lambda: push(address="to ken")),
    "a long token": (("address",), lambda: push(address="t" * 2_049)),
    "no title": (("push.title",), lambda: push(push={"body": "Hello"})),
    "a long title": (("push.title",), lambda: push(push={"title": "t" * 201})),
    "a large push message": (("push",), lambda: push(push={"title": "t", "data": {"k": "é" * 2_048}})),
    "much data": (("push.data",), lambda: push(push={"title": "t", "data": {str(n): "" for n in range(21)}})),
    "NUL in the data": (("push.data",), lambda: push(push={"title": "t", "data": {"k": "\0"}})),
    "a blank text message": (("sms.text",), lambda: text(sms={"text": " \n\u200b\u3000"})),
    "a bell in a text message": (("sms.text",), lambda: text(sms={"text": "Hello\a"})),
    "an escape in a text message": (("sms.text",), lambda: text(sms={"text": "\x1b[2J"})),
    "a blank title": (("push.title",), lambda: push(push={"title": " "})),
    "a title of two lines": (("push.title",), lambda: push(push={"title": "a\nb"})),
    "data without a name": (("push.data",), lambda: push(push={"title": "t", "data": {"": "v"}})),
    "an unknown field of the text message": (("sms.127",), lambda: text(sms=unknown(notification_pb2.SmsContent()))),
    "expired before it is due": (("expire_time",), lambda: text(delay=2 * DAY, expire_time=ahead(DAY))),
    "a number of no country, too late": (
        ("address", "due_time"),
        lambda: text(address="07700900123", due_time=ahead(366 * DAY)),
    ),
}

LINES: Cases = {
    "a line break as the category": (("category",), lambda: schedule(category="\n")),
    "LF in the category": (("category",), lambda: schedule(category="a\nb")),
    "LF in the reference": (("reference",), lambda: schedule(reference="order\n")),
    "an escape in the reference": (("reference",), lambda: schedule(reference="\x1b[2J")),
    "CR in the subject": (("email.subject",), lambda: schedule(email=mail(subject="a\rBcc: b@x.org"))),
    "LF in the subject": (("email.subject",), lambda: schedule(email=mail(subject="a\nBcc: b@x.org"))),
    "LF in the sender": (("email.sender",), lambda: schedule(email=mail(sender="a\nb <a@x.org>"))),
    "LF in the reply_to": (("email.reply_to",), lambda: schedule(email=mail(reply_to="a@x.org\n"))),
    "LF in a header": (("email.headers",), lambda: schedule(email=mail(headers={"X-A": "a\nBcc: b@x.org"}))),
    "LF in a header's name": (("email.headers",), lambda: schedule(email=mail(headers={"X-A\nBcc": "b@x.org"}))),
    "a line separator in a header": (("email.headers",), lambda: schedule(email=mail(headers={"X-A": "\u2028"}))),
}

KINDS: Cases = {
    "no subscriber": (("subscriber",), lambda: schedule(subscriber="")),
    "a long subscriber": (("subscriber",), lambda: schedule(subscriber="s" * 256)),
    "a template without its channel": (("template.channel",), lambda: schedule(template={"template": "hello"})),
    "variables that are none": (
        ("template.variables_json",),
        lambda: schedule(template={"template": "hello", "channel": 1, "variables_json": "["}),
    ),
}

TIMES: Cases = {
    "due in 1970": (("due_time",), lambda: schedule(due_time={"seconds": 0})),
    "due more than a day ago": (("due_time",), lambda: schedule(due_time=ahead(-DAY - timedelta(minutes=1)))),
    "due beyond the horizon": (("due_time",), lambda: schedule(due_time=ahead(366 * DAY))),
    "due in the year 9999": (("due_time",), lambda: schedule(due_time={"seconds": 253_402_300_799})),
    "a negative delay": (("delay",), lambda: schedule(delay=-timedelta(milliseconds=1))),
    "a delay beyond the horizon": (("delay",), lambda: schedule(delay=365 * DAY + timedelta(seconds=1))),
    "no time to live": (("ttl",), lambda: schedule(ttl=timedelta())),
    "a negative time to live": (("ttl",), lambda: schedule(ttl=-DAY)),
    "a long time to live": (("ttl",), lambda: schedule(ttl=366 * DAY)),
    "expired before it is due": (("expire_time",), lambda: schedule(delay=2 * DAY, expire_time=ahead(DAY))),
    "expired by now": (("expire_time",), lambda: schedule(expire_time=ahead(-timedelta(minutes=1)))),
    "expired since it was due": (
        ("expire_time",),
        lambda: schedule(due_time=ahead(-timedelta(hours=2)), expire_time=ahead(-timedelta(hours=1))),
    ),
    "outlived since it was due": (
        ("ttl",),
        lambda: schedule(due_time=ahead(-timedelta(hours=2)), ttl=timedelta(hours=1)),
    ),
}

OTHERS: Mapping[str, Cases] = {
    "GetNotification": {
        "no key": (("key",), get),
        "a malformed id": (("notification_id",), lambda: get(notification_id=ID[:-1])),
        "an empty id": (("notification_id",), lambda: get(notification_id="")),
        "an empty key": (("idempotency_key",), lambda: get(idempotency_key="")),
        "a long key": (("idempotency_key",), lambda: get(idempotency_key="k" * 256)),
        "NUL in the key": (("idempotency_key",), lambda: get(idempotency_key="\0")),
        "an unknown field": (("127",), lambda: unknown(get(notification_id=ID))),
    },
    "CancelNotification": {
        "no key": (("key",), cancel),
        "a malformed id": (("notification_id",), lambda: cancel(notification_id="1")),
        "a long reason": (("reason",), lambda: cancel(notification_id=ID, reason="r" * 256)),
        "NUL in the reason": (("reason",), lambda: cancel(notification_id=ID, reason="\0")),
    },
    "ListNotifications": {
        "a negative page": (("page_size",), lambda: scheduler_pb2.ListNotificationsRequest(page_size=-1)),
        "an unknown status": (("filter.status",), lambda: filtered(status=9)),
        "an unknown channel": (("filter.channel",), lambda: filtered(channel=4)),
        "an address of no channel": (("filter.channel",), lambda: filtered(address="a@x.org")),
        "an address of another channel": (("filter.address",), lambda: filtered(address="a@x.org", channel=SMS)),
        "a number of no country": (("filter.address",), lambda: filtered(address="07700900123", channel=SMS)),
        "no address": (("filter.address",), lambda: filtered(address="someone", channel=EMAIL)),
        "a long subscriber": (("filter.subscriber",), lambda: filtered(subscriber="s" * 256)),
        "NUL in the reference": (("filter.reference",), lambda: filtered(reference="\0")),
        "a long reference": (("filter.reference",), lambda: filtered(reference="r" * 256)),
        "several at once": (
            ("filter.subscriber", "filter.address", "filter.reference"),
            lambda: filtered(subscriber="s\n", address="someone", channel=EMAIL, reference="r" * 256),
        ),
        "a time after the year 9999": (("filter.created_since",), lambda: filtered(created_since={"seconds": 1 << 40})),
        "an unknown field": (("filter.127",), unknown_filter),
    },
    "BatchScheduleNotifications": {
        "none": (("requests",), batched),
        "1,001": (("requests",), lambda: batched(*[schedule()] * 1_001)),
        "an unknown field": (("127",), lambda: unknown(batched(schedule()))),
    },
    "RescheduleNotification": {
        "no key": (("key",), lambda: reschedule(priority=1)),
        "a malformed id": (("notification_id",), lambda: reschedule(notification_id="1", priority=1)),
        "nothing to change": (("due",), lambda: reschedule(notification_id=ID)),
        "a negative delay": (("delay",), lambda: reschedule(notification_id=ID, delay=-DAY)),
        "a delay beyond the horizon": (("delay",), lambda: reschedule(notification_id=ID, delay=366 * DAY)),
        "an unknown priority": (("priority",), lambda: reschedule(notification_id=ID, priority=4)),
        "several at once": (("due", "reason"), lambda: reschedule(notification_id=ID, reason="r" * 256)),
    },
    "BulkCancelNotifications": {
        "no filter": (("filter",), bulk_cancel),
        "no condition": (("filter",), lambda: bulk_cancel(filter=notification_pb2.NotificationFilter())),
        "a status alone": (("filter",), lambda: bulk_cancel(filter={"status": "STATUS_PENDING"})),
        "another status": (
            ("filter.status",),
            lambda: bulk_cancel(filter={"status": "STATUS_PROCESSING", "reference": "order"}),
        ),
        "a negative limit": (("limit",), lambda: bulk_cancel(filter={"reference": "order"}, limit=-1)),
        "a large limit": (("limit",), lambda: bulk_cancel(filter={"reference": "order"}, limit=1_001)),
        "a long reason": (("reason",), lambda: bulk_cancel(filter={"reference": "order"}, reason="r" * 256)),
        "a number of no country": (
            ("filter.address",),
            lambda: bulk_cancel(filter={"channel": SMS, "address": "07700900123"}),
        ),
        "several at once": (
            ("filter.subscriber", "filter.status", "limit"),
            lambda: bulk_cancel(filter={"status": "STATUS_SENT", "subscriber": "s\n", "reference": "x"}, limit=-1),
        ),
    },
    "GetQueueStats": {
        "an unknown field": (("127",), lambda: unknown(scheduler_pb2.GetQueueStatsRequest())),
    },
}


@pytest.mark.parametrize(
    "cases",
    [SHAPES, BOUNDS, CHANNELS, LINES, KINDS, TIMES],
    ids=["shapes", "bounds", "channels", "lines", "kinds", "times"],
)
async def test_a_wrong_request_to_schedule_names_its_fields(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications, cases: Cases
) -> None:
    async with nothing_written(notifications.connection):
        told = {name: await refusal(scheduler.ScheduleNotification(make())) for name, (_, make) in cases.items()}  # type: ignore[arg-type]
    assert told == {name: invalid(*fields) for name, (fields, _) in cases.items()}


@pytest.mark.parametrize("method", OTHERS)
async def test_a_wrong_request_about_notifications_names_its_fields(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications, method: str
) -> None:
    call, cases = getattr(scheduler, method), OTHERS[method]
    async with nothing_written(notifications.connection):
        told = {name: await refusal(call(make())) for name, (_, make) in cases.items()}
    assert told == {name: invalid(*fields) for name, (fields, _) in cases.items()}


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x02\xff\xfe"], ids=["no message", "no UTF-8"])
async def test_bytes_that_are_no_request_are_refused(
    start_scheduler: StartScheduler, database_url: str, notifications: Notifications, data: bytes
) -> None:
    channel = await start_scheduler(database_url)
    call: Any = channel.unary_unary("/notifyqueue.v1.Scheduler/ScheduleNotification")
    async with nothing_written(notifications.connection):
        assert await refusal(call(data)) == invalid("")


def incompressible(length: int) -> str:
    """Printable, and as long in an index as it is."""
    dice = random.Random(7)
    return "".join(chr(dice.randrange(33, 127)) for _ in range(length))


async def test_what_lies_within_the_bounds_is_written(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications
) -> None:
    requests = [
        schedule(email=mail(html="é" * 32_758)),
        schedule(due_time=ahead(-DAY + timedelta(minutes=1))),
        schedule(due_time=ahead(365 * DAY - timedelta(minutes=1))),
        schedule(delay=365 * DAY),
        schedule(ttl=365 * DAY),
        schedule(expire_time={"seconds": 253_402_300_799, "nanos": 999_999_999}),
        text(sms={"text": "\N{PILE OF POO}" * 1_600}),
        text(sms={"text": "\tHello\r\nthere\n"}),
        schedule(email=mail(text=" ", html="<p>"), category=" "),
        push(address=incompressible(2_048), push={"title": "t", "body": "é" * 2_047}),
        push(push={"title": "t", "data": {str(n): "" for n in range(20)}}),
        schedule(reference="\N{PILE OF POO}" * 255, labels={"\N{PILE OF POO}" * 64: "\N{PILE OF POO}" * 255}),
    ]
    for number, request in enumerate(requests):
        request.idempotency_key = f"{number}".rjust(255, "\N{PILE OF POO}")
        await scheduler.ScheduleNotification(request)
    assert await notifications.statuses() == {"PENDING": len(requests)}


@pytest.mark.parametrize("seconds", [-62_135_596_800, 253_402_300_799])
async def test_the_first_and_the_last_time_may_be_asked_for(
    scheduler: scheduler_pb2_grpc.SchedulerStub, seconds: int
) -> None:
    time = Timestamp(seconds=seconds, nanos=999_999_999)
    await scheduler.ListNotifications(filtered(created_since=time, created_before=time))


PAGES = Pages(SECRET.encode(), "notifications")
A_FILTER = notification_pb2.NotificationFilter(reference="order")


async def last_id(notifications: Notifications) -> UUID:
    """Below it lie two more."""
    return (await notifications.insert_many(3))[-1]


async def test_a_page_token_leads_to_the_next_page(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications
) -> None:
    token = PAGES.token("default", b"", await last_id(notifications))
    page = await scheduler.ListNotifications(scheduler_pb2.ListNotificationsRequest(page_token=token))
    assert len(page.notifications) == 2


Forge = Callable[[UUID], str]

FORGED: Mapping[str, Forge] = {
    "no base64": lambda _: "token",
    "no ASCII": lambda _: "\u00e9",
    "almost empty": lambda _: "AA==",
    "truncated": lambda id_: PAGES.token("default", b"", id_)[:-4],
    "tampered with at its end": lambda id_: PAGES.token("default", b"", id_)[:-5] + "AAAA=",
    "tampered with at its beginning": lambda id_: "B" + PAGES.token("default", b"", id_)[1:],
    "of another installation": lambda id_: Pages(b"x" * 32, "notifications").token("default", b"", id_),
    "of another list": lambda id_: Pages(SECRET.encode(), "endpoints").token("default", b"", id_),
    "of another filter": lambda id_: PAGES.token("default", A_FILTER.SerializeToString(), id_),
    "of another tenant": lambda id_: PAGES.token("other", b"", id_),
}


async def test_a_token_that_is_not_of_this_list_is_refused(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    id_ = await last_id(notifications)
    requests = {name: scheduler_pb2.ListNotificationsRequest(page_token=forge(id_)) for name, forge in FORGED.items()}
    async with nothing_written(notifications.connection):
        told = {name: await refusal(scheduler.ListNotifications(request)) for name, request in requests.items()}
    assert told == dict.fromkeys(FORGED, TOKEN_INVALID)


async def test_a_token_is_no_good_under_another_filter(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications
) -> None:
    await notifications.insert_many(3, reference="order")
    request = scheduler_pb2.ListNotificationsRequest(filter=A_FILTER, page_size=2)
    request.page_token = (await scheduler.ListNotifications(request)).next_page_token
    assert len((await scheduler.ListNotifications(request)).notifications) == 1
    request.filter.status = notification_pb2.Notification.STATUS_PENDING
    assert await refusal(scheduler.ListNotifications(request)) == TOKEN_INVALID
