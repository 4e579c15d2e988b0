"""The order in which a request is judged: a refusal goes before all that come later, and nothing later has happened.

    authenticate → permit → shape → known key → times → is there such a subscriber? → has he an address? → opted out
    → is there such a template? → quota → limit → render

Whether there is the template is asked before the limit, because the look that finds the key knows it already, and what
could never go in takes nobody's place. To render it costs work, and so it comes last, behind the limit; what fails then
gives its place back, for only what is written is charged.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Any

import asyncpg
import grpc.aio
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2, status_pb2
from pydantic import SecretStr

from notifyqueue.v1 import (
    notification_pb2,
    recipients_pb2,
    recipients_pb2_grpc,
    scheduler_pb2,
    scheduler_pb2_grpc,
    templates_pb2,
    templates_pb2_grpc,
)
from sandbox.postgres import Postgres
from services.scheduler import __main__ as process_of
from services.scheduler.settings import Settings
from shared.access import Role
from shared.owner.keys import create_key
from shared.owner.tenants import create_tenant
from shared.process import Process
from tests.conftest import login
from tests.databases import MIGRATED, connected, copy, make_migrated
from tests.integration.conftest import ANYWHERE
from tests.keyed import Metadata, bearer
from tests.templates import NAME, put, templated

pytestmark = pytest.mark.asyncio(loop_scope="module")

GONE = "gone@example.com"
NOBODY, MAILLESS = "nobody", "without a mail address"
USED_UP = "horizon = '1 day', accept_rate = 0.001, accept_burst = 1"
TENANTS = {"full": f"pending_quota = 1, {USED_UP}", "over": USED_UP}
TOUCHED = (
    *("notifications", "notification_contents", "notification_history", "webhook_events", "status_deltas"),
    *("subscribers", "suppressions", "templates", "template_versions"),
)


@dataclass(frozen=True)
class Step:
    reason: str
    fault: Mapping[str, Any] = field(default_factory=dict)
    """What is wrong with a request at this step; what is wrong with a tenant is so already."""
    by: str = "full"
    """Whose key the call brings."""
    names: str = ""
    """The field or the resource that the refusal names."""


STEPS = [
    Step("CREDENTIAL_INVALID", by="nobody"),
    Step("ROLE_MISSING", by="platform"),
    Step("REQUEST_INVALID", {"category": "x" * 65}, names="category"),
    Step("IDEMPOTENCY_KEY_REUSED", {"key": "known"}),
    Step("REQUEST_INVALID", {"delay": timedelta(days=2)}, names="delay"),
    Step("RESOURCE_NOT_FOUND", {"subscriber": NOBODY}, names="subscriber"),
    Step("ADDRESS_MISSING", {"subscriber": MAILLESS}),
    Step("RECIPIENT_OPTED_OUT", {"address": GONE}),
    Step("RESOURCE_NOT_FOUND", {"template": "nothing"}, names="template"),
    Step("QUOTA_EXCEEDED", names="pending notification"),
    Step("TENANT_LIMIT_EXCEEDED", by="over"),
    Step("TEMPLATE_RENDER_FAILED", {"variables": "{}"}, by="default"),
]


def faults(later: Mapping[str, Any], step: Step) -> Mapping[str, Any]:
    """All that is wrong at a step and later; what comes earlier goes before."""
    return {**later, **step.fault}


NONE: Mapping[str, Any] = {}
LADDER = list(accumulate(reversed(STEPS), faults, initial=NONE))[:0:-1]


@dataclass
class Door:
    scheduler: scheduler_pb2_grpc.SchedulerStub
    keys: Mapping[str, Metadata]
    tables: "asyncpg.Connection[asyncpg.Record]"

    async def ask(
        self, by: str, key: str = "new", template: str = NAME, subscriber: str = "", **fields: Any
    ) -> scheduler_pb2.ScheduleNotificationResponse:
        request = templated(key, **fields)
        request.template.template = template
        if subscriber:
            request.subscriber = subscriber  # instead of the address
        return await self.scheduler.ScheduleNotification(request, metadata=self.keys[by])

    async def standing(self) -> Mapping[str, Sequence[Any]]:
        """What a refusal leaves as it was. That a quota was counted again is nothing that anybody has used."""
        stands = {
            name: await self.tables.fetch(f"SELECT t.xmin::text, t::text FROM notifyqueue.{name} AS t")
            for name in TOUCHED
        }
        used = await self.tables.fetch("SELECT tenant_id, empty_at, pending FROM notifyqueue.accept_buckets")
        return {**stands, "accept_buckets": used}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(postgres: Postgres) -> AsyncIterator[Door]:
    """One tenant has used its quota and its limit, one its limit, and one has neither."""
    url = postgres.url_of("accept_order")
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(connected(postgres))
        await make_migrated(postgres, owner)
        await copy(owner, MIGRATED, "accept_order")
        stack.push_async_callback(owner.execute, "DROP DATABASE accept_order WITH (FORCE)")
        tables = await asyncpg.connect(url)
        stack.push_async_callback(tables.close)
        for tenant in TENANTS:
            await create_tenant(tables, tenant)
        keys: dict[str, Metadata] = {"nobody": (), "platform": bearer(await create_key(tables, Role.PLATFORM, None))}
        for tenant in ("default", *TENANTS):
            keys[tenant] = bearer(await create_key(tables, Role.ADMIN, tenant))

        settings = Settings(database_url=SecretStr(login(url, "scheduler")), **ANYWHERE | {"auth": "keys"})
        process = Process("scheduler", settings, stack)
        await process_of.start(process, settings)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
        templates = templates_pb2_grpc.TemplatesStub(channel)
        door = Door(scheduler_pb2_grpc.SchedulerStub(channel), keys, tables)

        await templates.PutTemplate(put(name="short-lived"), metadata=keys["full"])
        for tenant, bounds in {"default": "", **TENANTS}.items():
            await templates.PutTemplate(put(), metadata=keys[tenant])
            if bounds:
                await tables.execute(f"UPDATE notifyqueue.tenants SET {bounds} WHERE id = $1", tenant)
                await door.ask(tenant, "known", template="short-lived" if tenant == "full" else NAME, address=GONE)
        await templates.DeleteTemplate(templates_pb2.DeleteTemplateRequest(name="short-lived"), metadata=keys["full"])
        recipients = recipients_pb2_grpc.RecipientsStub(channel)
        mailless = recipients_pb2.PutSubscriberRequest(subscriber=MAILLESS, phone="+447700900123")
        for tenant in ("default", *TENANTS):
            await recipients.PutSubscriber(mailless, metadata=keys[tenant])
            for out in ({"address": GONE}, {"subscriber": NOBODY}, {"subscriber": MAILLESS}):
                await recipients.PutSuppression(opted_out(**out), metadata=keys[tenant])
        yield door


def opted_out(**whom: str) -> recipients_pb2.PutSuppressionRequest:
    return recipients_pb2.PutSuppressionRequest(
        channel=notification_pb2.CHANNEL_EMAIL, source=recipients_pb2.SUPPRESSION_SOURCE_OPTED_OUT, **whom
    )


@pytest.mark.parametrize(("step", "wrong"), list(zip(STEPS, LADDER, strict=True)), ids=[step.reason for step in STEPS])
async def test_each_refusal_goes_before_all_that_come_later_and_touches_nothing(
    door: Door, step: Step, wrong: Mapping[str, Any]
) -> None:
    before = await door.standing()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await door.ask(step.by, **wrong)
    trailers: dict[str, Any] = dict(refused.value.trailing_metadata() or ())
    assert trailers["error-reason"] == step.reason
    bad, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
    details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    named = [each.field for detail in details if detail.Unpack(bad) for each in bad.field_violations]
    named += [info.metadata["resource"] for detail in details if detail.Unpack(info) and "resource" in info.metadata]
    assert named == ([step.names] if step.names else [])
    assert await door.standing() == before


async def test_a_replay_is_answered_whatever_stands_against_it_since_and_touches_nothing(door: Door) -> None:
    """It has opted out, its template is gone, the quota is full and the limit is used up."""
    before = await door.standing()
    assert (await door.ask("full", "known", "short-lived", address=GONE)).replayed
    assert await door.standing() == before
