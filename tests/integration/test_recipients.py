"""Whom nothing is sent to, as operators say it: put, listed and taken away, and what was under way meanwhile."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from structlog.testing import capture_logs

from notifyqueue.v1 import notification_pb2, recipients_pb2, recipients_pb2_grpc, scheduler_pb2_grpc
from services.scheduler import suppressions
from services.scheduler.recipient_store import RecipientStore
from services.scheduler.suppressions import Filter, Suppressions
from services.worker.store import Store
from shared.access import Role
from shared.database import Database
from shared.errors import RequestInvalid
from shared.paging import NEWEST, Page
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.integration.test_get_list_cancel import CLAIMED, refused
from tests.integration.test_suppressions import GONE, claim, reason, schedule, suppress
from tests.keyed import Owner, bearer, start_keyed
from tests.notifications import Notifications
from tests.recipients import PSEUDONYMS
from tests.waiting import eventually

Recipients = recipients_pb2_grpc.RecipientsStub

EMAIL, SMS = notification_pb2.CHANNEL_EMAIL, notification_pb2.CHANNEL_SMS
OPTED_OUT, BOUNCED, COMPLAINED, OPERATOR = range(1, 5)
PUT: Mapping[str, Any] = {"channel": EMAIL, "address": GONE, "source": OPTED_OUT}


@pytest.fixture
async def channel(start_scheduler: StartScheduler, database_url: str) -> grpc.aio.Channel:
    return await start_scheduler(database_url)


@pytest.fixture
def recipients(channel: grpc.aio.Channel) -> Recipients:
    return Recipients(channel)


def put(**fields: Any) -> recipients_pb2.PutSuppressionRequest:
    return recipients_pb2.PutSuppressionRequest(**{**PUT, **fields})


def delete(**fields: Any) -> recipients_pb2.DeleteSuppressionRequest:
    return recipients_pb2.DeleteSuppressionRequest(**{**PUT, **fields})


def listed(**fields: Any) -> recipients_pb2.ListSuppressionsRequest:
    return recipients_pb2.ListSuppressionsRequest(**fields)


def since(back: timedelta, **fields: Any) -> recipients_pb2.BulkDeleteSuppressionsRequest:
    time = Timestamp()
    time.FromDatetime(datetime.now(UTC) - back)
    return recipients_pb2.BulkDeleteSuppressionsRequest(**{"source": BOUNCED, **fields}, since=time)


async def all_of(recipients: Recipients, **fields: Any) -> list[recipients_pb2.Suppression]:
    return list((await recipients.ListSuppressions(listed(**fields))).suppressions)


async def count(notifications: Notifications) -> int:
    found: int = await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.suppressions")
    return found


# Putting.


async def test_what_is_put_holds_at_once_in_every_spelling(
    channel: grpc.aio.Channel, recipients: Recipients, notifications: Notifications
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    answer = await recipients.PutSuppression(put(address="Gone@EXAMPLE.com"))
    assert (answer.suppression.address, answer.suppression.source) == (GONE, OPTED_OUT)
    assert not answer.unchanged
    await recipients.PutSuppression(put(channel=SMS, address="07700 900 123", source=OPERATOR, category="news"))
    scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
    assert await reason(scheduler, schedule(address="gone@Example.com")) == "RECIPIENT_OPTED_OUT"
    text: dict[str, Any] = {"sms": {"text": "Hello"}, "address": "+44 (0)7700900123"}
    assert await reason(scheduler, schedule(**text, category="news")) == "ADDRESS_SUPPRESSED"
    assert await reason(scheduler, schedule(**text)) == ""


async def test_putting_again_changes_nothing_also_when_many_do_at_once(
    recipients: Recipients, notifications: Notifications
) -> None:
    answers = await asyncio.gather(*(recipients.PutSuppression(put()) for _ in range(20)))
    assert [answer.unchanged for answer in answers].count(False) == 1
    assert len({answer.suppression.suppression_id for answer in answers}) == 1
    assert await count(notifications) == 1
    for fields in ({"source": COMPLAINED}, {"category": "news"}, {"channel": notification_pb2.CHANNEL_PUSH}):
        assert not (await recipients.PutSuppression(put(**fields))).unchanged
    assert await count(notifications) == 4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channel": 0}, "channel"),
        ({"address": ""}, "address"),
        ({"address": "nobody"}, "address"),
        ({"channel": SMS, "address": "07700 900 123"}, "address"),  # the tenant has no region
        ({"category": "a" * 65}, "category"),
        ({"category": "a\nb"}, "category"),
        ({"source": 0}, "source"),
    ],
)
async def test_what_is_wrong_is_named(
    recipients: Recipients, notifications: Notifications, fields: Mapping[str, Any], field: str
) -> None:
    for call in (recipients.PutSuppression(put(**fields)), recipients.DeleteSuppression(delete(**fields))):
        with pytest.raises(grpc.aio.AioRpcError, match=rf"{field}: ") as error:
            await call
        trailers: dict[str, Any] = dict(error.value.trailing_metadata())
        assert trailers["error-reason"] == "REQUEST_INVALID"
    assert await count(notifications) == 0


# What is under way.


async def test_the_answer_counts_what_a_worker_has_in_hand_of_what_it_forbids(
    recipients: Recipients, notifications: Notifications
) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.tenants (id) VALUES ('other');"
        "UPDATE notifyqueue.tenants SET required_categories = '{receipts}' WHERE id = 'default'"
    )
    held: dict[str, Any] = {"status": "PROCESSING", "attempt_count": 1, **CLAIMED}
    for number, columns in enumerate(
        (
            {"address": "Gone@example.com", "category": "news"},
            {"address": GONE},
            {"address": GONE, "category": "receipts"},
            {"address": GONE, "tenant_id": "other"},
            {"address": GONE, "channel": "PUSH"},
            {"address": "other@example.com"},
        )
    ):
        await notifications.insert(f"held-{number}", **held | columns)
    await notifications.insert("due", address=GONE)

    async def in_flight(**fields: Any) -> int:
        answer = await recipients.PutSuppression(put(**fields))
        assert not answer.in_flight.at_least
        return int(answer.in_flight.count)

    assert await in_flight() == 2  # the receipt goes all the same
    assert await in_flight(source=COMPLAINED) == 3
    assert await in_flight(category="news") == 1


async def test_a_claim_that_does_not_know_of_it_is_counted(
    recipients: Recipients, notifications: Notifications, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had begun before the opt-out was committed, and was committed itself after that."""
    looks = 0
    find_writers = RecipientStore.find_writers

    async def counted(store: RecipientStore) -> set[str]:
        nonlocal looks
        looks += 1
        return await find_writers(store)

    monkeypatch.setattr(RecipientStore, "find_writers", counted)
    await notifications.insert("before", address=GONE)
    async with Database(login(database_url, "worker"), name="test", size=1) as worker:
        async with worker.transaction() as connection:
            (claimed,) = await claim(Store(connection))
            answer = asyncio.ensure_future(recipients.PutSuppression(put()))
            await eventually(lambda: looks > 1 or answer.done())
            assert not answer.done()
        assert (claimed.suppressed_by, await count(notifications)) == ([], 1)
        assert (await answer).in_flight.count == 1


async def test_for_somebody_who_takes_long_nobody_waits_and_the_answer_says_so(
    recipients: Recipients, notifications: Notifications, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suppressions, "PATIENCE", 0.05)
    await notifications.insert("before", address=GONE)
    async with (
        Database(login(database_url, "worker"), name="test", size=1) as worker,
        worker.transaction() as connection,
    ):
        await claim(Store(connection))
        answer = await recipients.PutSuppression(put())
    assert (answer.in_flight.count, answer.in_flight.at_least) == (0, True)


# Listing.


async def test_a_list_has_what_fits_newest_first(recipients: Recipients, notifications: Notifications) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await suppress(notifications, tenant_id="other")
    for fields in (
        {},
        {"source": BOUNCED},
        {"category": "news"},
        {"address": "other@example.com"},
        {"channel": SMS, "address": "+447700900123"},
    ):
        await recipients.PutSuppression(put(**fields))
    everything = await all_of(recipients)
    assert [(one.address, one.source, one.category) for one in everything] == [
        ("+447700900123", OPTED_OUT, ""),
        ("other@example.com", OPTED_OUT, ""),
        (GONE, OPTED_OUT, "news"),
        (GONE, BOUNCED, ""),
        (GONE, OPTED_OUT, ""),
    ]
    assert await all_of(recipients, channel=EMAIL, address="GONE@example.com") == everything[2:]
    assert await all_of(recipients, channel=SMS) == everything[:1]
    assert await all_of(recipients, source=BOUNCED) == everything[3:4]
    assert await all_of(recipients, category="news") == everything[2:3]
    assert await all_of(recipients, channel=EMAIL, address=GONE, source=OPTED_OUT, category="news") == everything[2:3]
    assert await all_of(recipients, channel=EMAIL, address="never@example.com") == []
    _, wrong, _ = await refused(recipients.ListSuppressions(listed(address=GONE)))
    assert wrong == "REQUEST_INVALID"


async def test_pages_have_each_once_and_a_token_is_bound_to_its_filter(
    recipients: Recipients, notifications: Notifications
) -> None:
    for number in range(5):
        await suppress(notifications, category=str(number), source="BOUNCED")
    found: list[str] = []
    token = ""
    while True:
        page = await recipients.ListSuppressions(listed(source=BOUNCED, page_size=2, page_token=token))
        found += [one.category for one in page.suppressions]
        if not page.next_page_token:
            break
        token = page.next_page_token
    assert found == ["4", "3", "2", "1", "0"]
    for fields in ({"source": OPTED_OUT, "page_token": token}, {"source": BOUNCED, "page_token": f"{token}="}):
        _, wrong, _ = await refused(recipients.ListSuppressions(listed(**fields)))
        assert wrong == "PAGE_TOKEN_INVALID"


async def test_a_page_looks_at_ten_thousand_however_little_fits(
    notifications: Notifications, database_url: str
) -> None:
    await suppress(notifications, category="rare")
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source)"
        " SELECT 'default', 'EMAIL', 'a' || n, 'BOUNCED' FROM generate_series(1, 10000) AS n"
    )
    async with Database(login(database_url, "scheduler"), name="test", size=1) as database:
        listing = Suppressions(RecipientStore(database), PSEUDONYMS)
        rare = Filter(category="rare")
        rows, end = await listing.list("default", rare, Page(50))
        assert (rows, end is None) == ([], False)
        (row,), end = await listing.list("default", rare, Page(50, end or NEWEST))
        assert (row.category, end) == ("rare", None)


# Taking away.


async def test_one_is_taken_away_and_the_others_of_its_address_hold(
    channel: grpc.aio.Channel, recipients: Recipients, notifications: Notifications
) -> None:
    for fields in ({}, {"source": BOUNCED}, {"category": "news"}):
        await recipients.PutSuppression(put(**fields))
    scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
    with capture_logs() as logs:
        await recipients.DeleteSuppression(delete(address="Gone@example.COM"))
    (line,) = [line for line in logs if line["event"] == "suppression.deleted"]
    assert "example" not in str(line).lower()
    assert await reason(scheduler, schedule()) == "ADDRESS_SUPPRESSED"
    assert await reason(scheduler, schedule(category="news")) == "RECIPIENT_OPTED_OUT"
    await recipients.DeleteSuppression(delete(source=BOUNCED))
    assert await reason(scheduler, schedule()) == ""
    for missing in ({"source": BOUNCED}, {"category": "old"}, {"channel": notification_pb2.CHANNEL_PUSH}):
        _, wrong, metadata = await refused(recipients.DeleteSuppression(delete(**missing)))
        assert (wrong, metadata) == ("RESOURCE_NOT_FOUND", {"resource": "suppression"})
    assert await count(notifications) == 1


async def age(notifications: Notifications, back: timedelta, category: str) -> None:
    """As if it had been put so long ago: its id has its time."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.suppressions SET created_at = now() - $1::interval,"
        " id = (lpad(to_hex((extract(epoch FROM now() - $1::interval) * 1000)::bigint), 12, '0')"
        "   || substr(replace(id::text, '-', ''), 13))::uuid WHERE category = $2",
        back,
        category,
    )


async def test_what_a_source_has_brought_since_a_time_is_forgotten_and_nothing_else(
    recipients: Recipients, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    for category in ("old", "a", "b", "c"):
        await suppress(notifications, source="BOUNCED", category=category)
        await suppress(notifications, category=category)
    await suppress(notifications, source="BOUNCED", tenant_id="other")
    await age(notifications, timedelta(hours=2), "old")
    would = await recipients.BulkDeleteSuppressions(since(timedelta(hours=1), limit=2, dry_run=True))
    assert (would.deleted, would.remaining.count, bool(would.next_page_token)) == (2, 1, True)
    assert await count(notifications) == 9
    with capture_logs() as logs:
        first = await recipients.BulkDeleteSuppressions(since(timedelta(hours=1), limit=2))
    assert (first.deleted, first.remaining.count) == (2, 1)
    (line,) = [line for line in logs if line["event"] == "suppression.deleted"]
    assert (line["count"], line["source"]) == (2, "BOUNCED")
    assert [one.category for one in await all_of(recipients, source=BOUNCED)] == ["a", "old"]
    rest = await recipients.BulkDeleteSuppressions(since(timedelta(hours=1)))
    assert (rest.deleted, rest.remaining.count, rest.next_page_token) == (1, 0, "")
    assert [one.category for one in await all_of(recipients, source=BOUNCED)] == ["old"]
    assert len(await all_of(recipients, source=OPTED_OUT)) == 4
    assert await count(notifications) == 6


async def test_a_dry_run_counts_all_by_its_tokens(recipients: Recipients, notifications: Notifications) -> None:
    for number in range(5):
        await suppress(notifications, source="BOUNCED", category=str(number))
    token, counted = "", 0
    bound = since(timedelta(hours=1), limit=2, dry_run=True)
    while True:
        bound.page_token = token
        answer = await recipients.BulkDeleteSuppressions(bound)
        counted += answer.deleted
        if not (token := answer.next_page_token):
            break
    assert counted == 5
    for wrong in (since(timedelta(), source=0), since(timedelta(), limit=1_001)):
        assert (await refused(recipients.BulkDeleteSuppressions(wrong)))[1] == "REQUEST_INVALID"


async def test_two_that_forget_at_once_take_away_each_once(
    recipients: Recipients, notifications: Notifications, database_url: str
) -> None:
    for number in range(3):
        await suppress(notifications, source="BOUNCED", category=str(number))
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("DELETE FROM notifyqueue.suppressions WHERE category = '1'")
            answer = asyncio.ensure_future(recipients.BulkDeleteSuppressions(since(timedelta(hours=1))))
            await eventually(lambda: somebody_waits(notifications))
        assert (await answer).deleted == 2
    finally:
        await other.close()
    assert await count(notifications) == 0


async def somebody_waits(notifications: Notifications) -> bool:
    return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


def test_a_bulk_order_needs_its_time() -> None:
    with pytest.raises(RequestInvalid) as error:
        suppressions.check_order("BOUNCED", None, 0, dry_run=False)
    assert [wrong.field for wrong in error.value.violations] == ["since"]


async def test_the_acting_key_is_recorded_with_what_it_puts_and_takes_away(
    database_url: str, notifications: Notifications, stack: AsyncExitStack
) -> None:
    keyed, owner = await start_keyed(stack, database_url), Owner(notifications.connection)
    key = await owner.key(Role.OPERATOR)
    request = {"channel": "CHANNEL_EMAIL", "address": GONE, "source": "SUPPRESSION_SOURCE_OPERATOR"}
    again = bearer(await owner.key(Role.ADMIN))
    for metadata in (bearer(key), again):
        answer: Any = await keyed.call("notifyqueue.v1.Recipients/PutSuppression", metadata, request)
        assert answer.suppression.actor == f"key:{key.id}"
    with capture_logs() as logs:
        await keyed.call("notifyqueue.v1.Recipients/DeleteSuppression", bearer(key), request)
    (line,) = [line for line in logs if line["event"] == "suppression.deleted"]
    assert (line["suppression_id"], line["actor"]) == (answer.suppression.suppression_id, f"key:{key.id}")
