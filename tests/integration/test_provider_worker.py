"""Providers in a real worker: an attempt is a request, and what may have been delivered once is not sent twice."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import grpc
import pytest
from structlog.testing import capture_logs

from services.worker.providers import Provider
from services.worker.providers.unconfigured import Unconfigured
from shared.settings import PREFIX
from tests.http_providers import KINDS, Kind
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.raw_http import Do, answer, raw_server
from tests.remote_server import remote, remote_server
from tests.smtp_server import IMPATIENT_AFTER_DOT, starting
from tests.smtp_server import Do as SmtpDo
from tests.waiting import eventually

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

Given = tuple[Provider, Sequence[object]]


@asynccontextmanager
async def mails(end: SmtpDo) -> AsyncIterator[Given]:
    """A provider of mail whose server ends so after the final dot, and what it was given."""
    async with starting() as start:
        smtp, server = await start({"DOT": end}, **IMPATIENT_AFTER_DOT)
        yield smtp, server.bodies


@asynccontextmanager
async def calls(end: grpc.StatusCode | None) -> AsyncIterator[Given]:
    """Likewise one that is called."""
    async with remote_server(end) as server, remote(server.address, "EMAIL", timeout=0.5) as provider:
        yield provider, server.asked


each_without_an_answer = pytest.mark.parametrize(
    "unanswered",
    [
        pytest.param(partial(mails, SmtpDo.HANG), id="smtp-hang"),
        pytest.param(partial(mails, SmtpDo.RESET), id="smtp-reset"),
        pytest.param(partial(calls, None), id="remote-hang"),
        pytest.param(partial(calls, grpc.StatusCode.UNAVAILABLE), id="remote-lost"),
    ],
)
Unanswered = Callable[[], AbstractAsyncContextManager[Given]]


async def insert(notifications: Notifications, kind: Kind, **columns: Any) -> UUID:
    id_ = await notifications.insert(kind.name, channel=kind.channel, address=kind.address, **columns)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notification_contents SET content = $2 WHERE notification_id = $1",
        id_,
        json.dumps(kind.content),
    )
    return id_


async def ended(notifications: Notifications, id_: UUID) -> bool:
    return await notifications.status(id_) not in ("PENDING", "PROCESSING")


@each_kind
@pytest.mark.parametrize("end", [Do.HANG, Do.CLOSE, answer(500)], ids=["hang", "close", "500"])
async def test_at_most_once_ends_with_the_first_request_that_may_have_been_carried_out(
    notifications: Notifications, start_worker: StartWorker, database_url: str, kind: Kind, end: Do | bytes
) -> None:
    async with raw_server(end) as server, kind.make(server.url, 0.5 if end is Do.HANG else 30.0) as provider:
        id_ = await insert(notifications, kind, at_most_once=True)
        await start_worker(database_url, {kind.channel: provider})
        await eventually(lambda: ended(notifications, id_))
        row = await notifications.get(id_)
        assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("FAILED", "OUTCOME_UNKNOWN", 1)
        assert len(server.requests) == 1


@each_kind
async def test_each_recorded_attempt_is_one_request(
    notifications: Notifications, start_worker: StartWorker, database_url: str, kind: Kind
) -> None:
    async with raw_server(Do.RESET) as server, kind.make(server.url, 30.0) as provider:
        id_ = await insert(notifications, kind, max_attempts=2)
        await start_worker(database_url, {kind.channel: provider})
        await eventually(lambda: ended(notifications, id_))
        history = await notifications.history(id_)
        assert {entry["kind"] for entry in history} == {"ATTEMPT_UNKNOWN"}
        assert len(server.requests) == len(history) == 3  # two, and the one that reconciles
        assert await notifications.status(id_) == "DEAD_LETTERED"


@each_without_an_answer
async def test_at_most_once_ends_with_the_first_mail_or_call_that_has_no_answer(
    notifications: Notifications, start_worker: StartWorker, database_url: str, unanswered: Unanswered
) -> None:
    async with unanswered() as (provider, given):
        id_ = await notifications.insert("once", at_most_once=True, max_attempts=2)
        await start_worker(database_url, provider)
        await eventually(lambda: ended(notifications, id_))
        row = await notifications.get(id_)
        assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("FAILED", "OUTCOME_UNKNOWN", 1)
        assert len(given) == 1


@each_without_an_answer
async def test_each_recorded_attempt_is_one_mail_or_call(
    notifications: Notifications, start_worker: StartWorker, database_url: str, unanswered: Unanswered
) -> None:
    async with unanswered() as (provider, given):
        id_ = await notifications.insert("mail", max_attempts=2)
        await start_worker(database_url, provider)
        await eventually(lambda: ended(notifications, id_))
        history = await notifications.history(id_)
        assert {entry["kind"] for entry in history} == {"ATTEMPT_UNKNOWN"}
        assert len(given) == len(history) == 3  # two, and the one that reconciles
        assert await notifications.status(id_) == "DEAD_LETTERED"


async def test_an_opt_out_at_the_provider_is_suppressed_not_failed(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    kind = next(kind for kind in KINDS if kind.name == "twilio")
    async with raw_server(answer(400, b'{"code": 21610}')) as server, kind.make(server.url, 30.0) as provider:
        id_ = await insert(notifications, kind)
        await start_worker(database_url, {kind.channel: provider})
        await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"], row["provider_code"]) == ("SUPPRESSED", "OPTED_OUT", "400-21610")
    assert await notifications.events(id_) == ["SUPPRESSED"]


async def test_a_lane_that_lacks_a_credential_says_so_and_touches_nothing(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    waiting = await notifications.insert("sms", channel="SMS", address="+447700900123")
    mail = await notifications.insert("mail")
    scripted = ScriptedProvider()
    lacking = Unconfigured("twilio", "TWILIO_AUTH_TOKEN", "TWILIO_SENDER")
    with capture_logs() as lines:
        await start_worker(database_url, {"EMAIL": scripted, "SMS": lacking}, probe_base=0.1, probe_cap=0.2)
    (said,) = [line for line in lines if line["event"] == "lane.unconfigured"]
    assert (said["log_level"], said["channel"], said["provider"]) == ("error", "SMS", "twilio")
    assert said["missing"] == f"{PREFIX}TWILIO_AUTH_TOKEN, {PREFIX}TWILIO_SENDER"
    await eventually(lambda: ended(notifications, mail))

    async def cause() -> str | None:
        found: str | None = await notifications.connection.fetchval(
            "SELECT cause FROM notifyqueue.lanes WHERE channel = 'SMS'"
        )
        return found

    assert await eventually(cause) == "TWILIO_AUTH_TOKEN-missing"
    row = await notifications.get(waiting)
    assert (row["status"], row["attempt_count"]) == ("PENDING", 0)
    serving = await notifications.connection.fetchval("SELECT channels FROM notifyqueue.workers")
    assert serving == ["EMAIL"]


async def test_a_worker_that_has_it_serves_the_lane_all_the_same(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    id_ = await notifications.insert("sms", channel="SMS", address="+447700900123")
    lacking, scripted = Unconfigured("twilio", "TWILIO_AUTH_TOKEN"), ScriptedProvider()
    await start_worker(database_url, {"SMS": lacking}, probe_base=0.1, probe_cap=0.2)
    await start_worker(database_url, {"SMS": scripted}, probe_base=0.1, probe_cap=0.2)
    await eventually(lambda: ended(notifications, id_))
    assert await notifications.status(id_) == "SENT"
