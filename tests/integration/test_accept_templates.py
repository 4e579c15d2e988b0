"""A notification from a template is rendered when it is accepted, or it leaves no trace; a replay renders nothing."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import (
    errors_pb2,
    notification_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    templates_pb2,
    templates_pb2_grpc,
)
from services.scheduler.accept import Accept
from services.scheduler.accept_store import AcceptStore
from services.scheduler.judging import Accepted, candidate
from services.scheduler.notification import Request, TemplateUse
from services.scheduler.renderer import Renderer
from services.scheduler.rendering import Compiled
from services.scheduler.store import sql
from services.scheduler.template_store import TemplateStore
from services.scheduler.templates import VersionRef
from shared.database import Database, Executor
from shared.errors import ResourceNotFound, TemplateRenderFailed
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.notifications import Notifications
from tests.recipients import PSEUDONYMS
from tests.templates import GREETING, NAME, NoTemplates, put, templated

SOON = timedelta(seconds=5)
TEXT = {"template": "text", "channel": notification_pb2.CHANNEL_SMS, "variables_json": '{"order": 1}'}
ERASE = templates_pb2.DeleteTemplateRequest(name=NAME)


class Stubs:
    """Both services, of one process."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
        self.templates = templates_pb2_grpc.TemplatesStub(channel)

    async def schedule(self, key: str = "order-17", **fields: Any) -> scheduler_pb2.ScheduleNotificationResponse:
        return await self.scheduler.ScheduleNotification(templated(key, **fields))

    async def refused(self, key: str = "order-17", **fields: Any) -> tuple[str, str]:
        """The reason, and what it says."""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.schedule(key, **fields)
        trailers: dict[str, Any] = dict(refused.value.trailing_metadata() or ())
        return trailers["error-reason"], refused.value.details() or ""


@pytest.fixture
async def stubs(start_scheduler: StartScheduler, database_url: str) -> Stubs:
    return Stubs(await start_scheduler(database_url))


async def contents(notifications: Notifications) -> dict[str, Any]:
    rows = await notifications.connection.fetch(
        "SELECT n.idempotency_key, c.content FROM notifyqueue.notifications AS n"
        " JOIN notifyqueue.notification_contents AS c ON c.notification_id = n.id"
    )
    return {row["idempotency_key"]: json.loads(row["content"]) for row in rows}


async def everything(notifications: Notifications) -> Mapping[str, Any]:
    """What a refusal must leave as it was."""
    names = ("notifications", "notification_contents", "accept_buckets", "notification_history", "webhook_events")
    return {
        name: await notifications.connection.fetch(f"SELECT xmin::text, t::text FROM notifyqueue.{name} AS t")
        for name in names
    }


async def test_what_was_rendered_is_stored_with_the_version_it_came_from(
    stubs: Stubs, notifications: Notifications
) -> None:
    await stubs.templates.PutTemplate(put())
    accepted = (await stubs.schedule()).notification
    assert (accepted.template, accepted.template_version) == (NAME, 1)
    assert accepted.channel == notification_pb2.CHANNEL_EMAIL
    assert await contents(notifications) == {
        "order-17": {"subject": "Order 17", "text": "Hello Ann", "html": "<p>Hello Ann</p>"}
    }
    key = scheduler_pb2.GetNotificationRequest(idempotency_key="order-17")
    assert (await stubs.scheduler.GetNotification(key)).notification == accepted
    listed = await stubs.scheduler.ListNotifications(scheduler_pb2.ListNotificationsRequest())
    assert list(listed.notifications) == [accepted]
    moved = scheduler_pb2.RescheduleNotificationRequest(idempotency_key="order-17", delay=Duration(seconds=3600))
    assert (await stubs.scheduler.RescheduleNotification(moved)).notification.template_version == 1


async def test_a_later_version_changes_nothing_that_was_accepted(stubs: Stubs, notifications: Notifications) -> None:
    await stubs.templates.PutTemplate(put())
    await stubs.schedule("a")
    await stubs.templates.PutTemplate(put(en={"email": {**GREETING, "text": "Goodbye {{ name }}"}}))
    assert (await stubs.schedule("b")).notification.template_version == 2
    assert (await stubs.schedule("c", version=1)).notification.template_version == 1
    found = await contents(notifications)
    assert [found[key]["text"] for key in "abc"] == ["Hello Ann", "Goodbye Ann", "Hello Ann"]


async def test_the_same_again_after_an_edit_and_after_erasing_is_a_replay(
    stubs: Stubs, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stubs.templates.PutTemplate(put())
    first = (await stubs.schedule()).notification
    monkeypatch.delattr(Compiled, "render")  # a replay renders nothing
    await stubs.templates.PutTemplate(put(en={"email": {"subject": "s", "text": "t"}}))
    again = await stubs.schedule(variables=' { "name":"\\u0041nn", "order" : 17 } ')
    assert (again.replayed, again.notification) == (True, first)
    await stubs.templates.DeleteTemplate(ERASE)
    assert (await stubs.schedule()).replayed
    for other in ({"variables": '{"order": 18, "name": "Ann"}'}, {"version": 1}, {"locale": "de"}):
        assert (await stubs.refused(**other))[0] == "IDEMPOTENCY_KEY_REUSED"


@pytest.mark.parametrize(
    ("fields", "reason", "told"),
    [
        ({"variables": "{}"}, "TEMPLATE_RENDER_FAILED", "missing variables: order, name"),
        ({"variables": '{"order": "1\\r\\nBcc: b@x.org", "name": 1}'}, "TEMPLATE_RENDER_FAILED", "email.subject: "),
        ({"variables": json.dumps({"order": 1, "name": "n" * 50_000})}, "TEMPLATE_RENDER_FAILED", "email: has "),
        ({"version": 7}, "RESOURCE_NOT_FOUND", "no such template"),
        ({"channel": notification_pb2.CHANNEL_SMS, "address": "+447700900123"}, "REQUEST_INVALID", "template.channel"),
    ],
    ids=["missing", "line", "size", "version", "channel"],
)
async def test_what_cannot_be_rendered_leaves_no_trace_and_spends_nothing(
    stubs: Stubs, notifications: Notifications, fields: dict[str, Any], reason: str, told: str
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = 0.01, accept_burst = 2")
    await stubs.templates.PutTemplate(put())
    await stubs.schedule("before")
    before = await everything(notifications)
    found, said = await stubs.refused(**fields)
    assert found == reason
    assert told in said
    assert not any(value in said for value in ("Bcc", "nnn"))
    assert await everything(notifications) == before
    await stubs.schedule()  # in what is left of the burst, under the same key


async def test_a_template_is_rendered_after_all_else_was_asked(
    stubs: Stubs, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stubs.templates.PutTemplate(put())
    monkeypatch.delattr(Compiled, "render")
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source)"
        " VALUES ('default', 'EMAIL', 'someone@example.com', 'OPTED_OUT')"
    )
    assert (await stubs.refused(delay=timedelta(days=366)))[0] == "REQUEST_INVALID"
    assert (await stubs.refused())[0] == "RECIPIENT_OPTED_OUT"
    assert (await stubs.refused(version=7))[0] == "RECIPIENT_OPTED_OUT"
    await notifications.connection.execute("DELETE FROM notifyqueue.suppressions")
    await notifications.connection.execute(
        "UPDATE notifyqueue.tenants SET accept_rate = 0.001, accept_burst = 1;"
        "INSERT INTO notifyqueue.accept_buckets VALUES ('default', now() + interval '1000 s')"
    )
    assert (await stubs.refused())[0] == "TENANT_LIMIT_EXCEEDED"


async def test_in_a_batch_each_is_rendered_or_refused_on_its_own(stubs: Stubs, notifications: Notifications) -> None:
    await stubs.templates.PutTemplate(put())
    await stubs.templates.PutTemplate(put(name="text", en={"sms": {"text": "Order {{ order }}"}}))
    requests = [
        templated("good"),
        templated("missing", variables='{"name": "geheim"}'),
        templated("unknown", template={"template": "none", "channel": notification_pb2.CHANNEL_EMAIL}),
        templated("sms", template=TEXT, address="+447700900123"),
        templated("unnamed", template={"channel": 1}),
    ]
    batch = scheduler_pb2.BatchScheduleNotificationsRequest(requests=requests)
    results = (await stubs.scheduler.BatchScheduleNotifications(batch)).results
    reasons = [errors_pb2.ErrorReason.Name(result.refused.reason).removeprefix("ERROR_REASON_") for result in results]
    assert reasons == ["UNSPECIFIED", "TEMPLATE_RENDER_FAILED", "RESOURCE_NOT_FOUND", "UNSPECIFIED", "REQUEST_INVALID"]
    assert dict(results[1].refused.metadata) == {
        "template": NAME,
        "version": "1",
        "locale": "en",
        "missing": "order",
    }
    assert (await contents(notifications)).keys() == {"good", "sms"}


async def test_a_failure_tells_fields_in_its_details(stubs: Stubs) -> None:
    await stubs.templates.PutTemplate(put())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.schedule(variables='{"order": "a\\nb", "name": 1}')
    trailers: dict[str, Any] = dict(refused.value.trailing_metadata() or ())
    details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    wrong = error_details_pb2.BadRequest()
    assert any(detail.Unpack(wrong) for detail in details)
    assert [violation.field for violation in wrong.field_violations] == ["email.subject"]


class Watched(Database):
    """Remembers what it is asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="test", size=1)
        self.statements: list[str] = []
        self._names = {text: name for name, text in sql._texts.items()}

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]":
        self.statements.append(self._names[query])
        return await super().fetch(query, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        self.statements.append("transaction")
        async with super().transaction() as connection:
            yield connection


def asked(key: str, variables: str = '{"order":17,"name":"Ann"}', version: int | None = None) -> Request:
    use = TemplateUse(NAME, version, None, variables)
    return Request("default", key, "EMAIL", "a@example.com", {}, 2, None, None, False, "", None, {}, use)


async def test_a_group_with_templates_pays_one_statement_more_and_then_none(stubs: Stubs, database_url: str) -> None:
    await stubs.templates.PutTemplate(put())
    async with Watched(login(database_url, "scheduler")) as database:
        renderer = Renderer(TemplateStore(database))
        accept = Accept(
            AcceptStore(database), renderer, pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=SOON
        )
        answers = await accept.flush([candidate(asked(f"{number}")) for number in range(200)])
        assert all(isinstance(answer, Accepted) for answer in answers)
        assert database.statements == ["look_up_keys", "read_variants", "insert_notifications"]
        database.statements.clear()
        await accept.flush([candidate(asked("next"))])
        assert database.statements == ["look_up_keys", "insert_notifications"]


async def test_whose_template_fails_takes_nobodys_place_under_the_limit(
    stubs: Stubs, notifications: Notifications, database_url: str
) -> None:
    await stubs.templates.PutTemplate(put())
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = 0.01, accept_burst = 1")
    async with Watched(login(database_url, "scheduler")) as database:
        renderer = Renderer(TemplateStore(database))
        accept = Accept(
            AcceptStore(database), renderer, pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=SOON
        )
        bad, good = candidate(asked("bad", "{}")), candidate(asked("good"))
        failed, accepted = await accept.flush([bad, good])
        assert isinstance(failed, TemplateRenderFailed)
        assert isinstance(accepted, Accepted)


async def test_what_is_erased_between_two_looks_is_no_such_template(stubs: Stubs, database_url: str) -> None:
    await stubs.templates.PutTemplate(put())

    class Erasing(TemplateStore):
        async def read_variants(self, versions: Sequence[VersionRef]) -> Mapping[VersionRef, Any]:
            await stubs.templates.DeleteTemplate(ERASE)
            return await super().read_variants(versions)

    async with Watched(login(database_url, "scheduler")) as database:
        renderer = Renderer(Erasing(database))
        accept = Accept(
            AcceptStore(database), renderer, pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=SOON
        )
        (answer,) = await accept.flush([candidate(asked("a"))])
        assert isinstance(answer, ResourceNotFound)


async def test_what_was_rendered_is_written_though_its_template_is_erased_meanwhile(
    stubs: Stubs, notifications: Notifications, database_url: str
) -> None:
    await stubs.templates.PutTemplate(put())
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = 100, accept_burst = 100")

    class Erasing(AcceptStore):
        async def make_buckets(self, tenants: Sequence[str]) -> None:
            await super().make_buckets(tenants)
            await stubs.templates.DeleteTemplate(ERASE)

    async with Watched(login(database_url, "scheduler")) as database:
        renderer = Renderer(TemplateStore(database))
        accept = Accept(
            Erasing(database), renderer, pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=SOON
        )
        (answer,) = await accept.flush([candidate(asked("a"))])
        assert isinstance(answer, Accepted)
    assert (await contents(notifications))["a"]["text"] == "Hello Ann"


async def test_a_group_without_templates_asks_for_none(database_url: str) -> None:
    async with Watched(login(database_url, "scheduler")) as database:
        accept = Accept(
            AcceptStore(database),
            NoTemplates(),
            pseudonyms=PSEUDONYMS,
            max_attempts=5,
            on_due=lambda _: None,
            soon=SOON,
        )
        plain = Request("default", "a", "SMS", "+447700900123", {"text": "a"}, 2, None, None, False, "", None, {})
        (answer,) = await accept.flush([candidate(plain)])
        assert isinstance(answer, Accepted)
        assert (answer.notification.template, answer.notification.template_version) == (None, None)
        assert database.statements == ["look_up_keys", "insert_notifications"]
