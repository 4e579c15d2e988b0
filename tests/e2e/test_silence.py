"""No log, span, metric or error says who was told what: markers that are planted in everything personal are in nothing
that a process tells, nor in PostgreSQL's own log.
"""

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import asyncpg
import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from notifyqueue.v1 import (
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    notification_pb2,
    recipients_pb2,
    recipients_pb2_grpc,
    scheduler_pb2,
    scheduler_pb2_grpc,
    templates_pb2_grpc,
)
from sandbox.postgres import DATABASE, SUPERUSER
from shared.pseudonym import pseudonym
from shared.telemetry import metrics
from tests.e2e.conftest import Up, up
from tests.telemetry import Otlp
from tests.templates import put
from tests.waiting import eventually

MARKERS = (
    *("mk-subject", "mk-body", "mk-key", "mk-label", "mk-reference", "mk-header", "mk-name", "mk-local"),
    *("mk-template", "mk-value", "mk-state", "mk-agent", "mk-person", "mk-note", "mk-endpoint", "mk-query"),
    "mk-category",
)
WRONG_KEY = "nq_0123456789ab_" + "c0ffee" * 10 + "c0ff"
ENDS = {
    "sent": "mk-local-sent@example.com",
    "refused": "reject+mk-local-refused@example.com",
    "retried": "451x1+mk-local-retried@example.com",
}

# One whose first answer is lost, and one that is refused.
NUMBERS = ("+12025550191", "+15005550001")

EVERYTHING = {
    "NOTIFYQUEUE_LOG_LEVEL": "DEBUG",
    "SANDBOX_LOG_LEVEL": "DEBUG",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
}

# A caller's trace. Its words are passed on, and in spans only as what they are.
CALLER = (("traceparent", f"00-{'1' * 32}-{'2' * 16}-01"), ("tracestate", "shop=mk-state"), ("x-agent", "mk-agent"))

Credentials = tuple[tuple[str, str], ...]


def request(name: str, address: str) -> scheduler_pb2.ScheduleNotificationRequest:
    return scheduler_pb2.ScheduleNotificationRequest(
        idempotency_key=f"mk-key-{name}",
        address=address,
        email=notification_pb2.EmailContent(
            subject="mk-subject", text="mk-body", sender="mk-name <us@example.com>", headers={"X-Note": "mk-header"}
        ),
        reference="mk-reference",
        labels={"mk-label": "mk-label"},
        category="mk-category",
    )


def on_other_channels() -> list[scheduler_pb2.ScheduleNotificationRequest]:
    """Two that are taken at last, and two that are refused."""
    text = notification_pb2.SmsContent(text="mk-body")
    push = notification_pb2.PushContent(title="mk-subject", body="mk-body", data={"mk-key": "mk-label"})
    texts = [
        scheduler_pb2.ScheduleNotificationRequest(idempotency_key=f"mk-key-{number}", address=number, sms=text)
        for number in NUMBERS
    ]
    pushes = [
        scheduler_pb2.ScheduleNotificationRequest(idempotency_key=f"mk-key-{device}", address=device, push=push)
        for device in ("accept-then-closex1+mk-local-phone", "unregistered+mk-local-phone")
    ]
    return [*texts, *pushes]


async def from_a_template(
    channel: grpc.aio.Channel, credentials: Credentials
) -> scheduler_pb2.ScheduleNotificationRequest:
    """A request for a mail from one that is put before."""
    await templates_pb2_grpc.TemplatesStub(channel).PutTemplate(
        put(name="greeting", en={"email": {"subject": "mk-template {{ name }}", "text": "mk-template {{ name }}"}}),
        metadata=credentials,
    )
    return scheduler_pb2.ScheduleNotificationRequest(
        idempotency_key="mk-key-template",
        address="mk-local-template@example.com",
        template=notification_pb2.TemplateContent(
            template="greeting", channel=notification_pb2.CHANNEL_EMAIL, variables_json='{"name": "mk-value"}'
        ),
    )


async def steer(running: Up, credentials: Credentials) -> dispatcher_pb2.CreateEndpointResponse:
    """What operators say, and name. Answers an endpoint with its secret."""
    async with grpc.aio.insecure_channel(running.address("scheduler")) as channel:
        people = recipients_pb2_grpc.RecipientsStub(channel)
        scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
        person = recipients_pb2.PutSubscriberRequest(
            subscriber="mk-person", email="mk-local-person@example.com", push="mk-local-phone"
        )
        await people.PutSubscriber(person, metadata=credentials)
        to_him = request("person", "")
        to_him.subscriber = "mk-person"
        await scheduler.ScheduleNotification(to_him, metadata=credentials)
        suppressed = recipients_pb2.PutSuppressionRequest(
            channel=notification_pb2.CHANNEL_EMAIL,
            address="mk-local-gone@example.com",
            category="mk-category",
            source=recipients_pb2.SUPPRESSION_SOURCE_OPERATOR,
        )
        await people.PutSuppression(suppressed, metadata=credentials)
        later = request("later", "mk-local-later@example.com")
        later.due_time.GetCurrentTime()
        later.due_time.seconds += 3600
        stored = await scheduler.ScheduleNotification(later, metadata=credentials)
        cancel = scheduler_pb2.CancelNotificationRequest(
            notification_id=stored.notification.notification_id, reason="mk-note"
        )
        await scheduler.CancelNotification(cancel, metadata=credentials)
    async with grpc.aio.insecure_channel(running.address("dispatcher")) as channel:
        endpoint = dispatcher_pb2.CreateEndpointRequest(
            url=f"{running.place['receiver'].rpartition('/')[0]}/mk-endpoint?mk-query=mk-query",
            description="mk-note",
        )
        dispatcher = dispatcher_pb2_grpc.WebhookDispatcherStub(channel)
        return await dispatcher.CreateEndpoint(endpoint, metadata=credentials)


async def refuse(state: Path) -> None:
    """What PostgreSQL refuses, with a row that it would quote."""
    port = (state / "postgres" / "postmaster.pid").read_text().splitlines()[3]
    password = (state / "postgres.password").read_text()
    owner = await asyncpg.connect(f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{port}/{DATABASE}")
    insert = (
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority, "
        "max_attempts, due_at, next_attempt_at) VALUES ('default', $1, '', 'EMAIL', $2, $3, 5, now(), now())"
    )
    for key, priority in (("mk-key-sent", 2), ("mk-key-new", 9)):  # one that is there; one that fails a CHECK
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await owner.execute(insert, key, "mk-local-sent@example.com", priority)
    await owner.close()


async def provoke(
    stub: scheduler_pb2_grpc.SchedulerStub,
    credentials: Credentials,
    templated: scheduler_pb2.ScheduleNotificationRequest,
) -> list[str]:
    """What is refused at the door, and what is asked for twice. Answers all that callers were told."""
    bad = request("bad", "mk-local")
    unrendered = scheduler_pb2.ScheduleNotificationRequest()
    unrendered.CopyFrom(templated)
    unrendered.idempotency_key, unrendered.template.variables_json = "mk-key-unrendered", '{"mk-value": "mk-value"}'
    page = scheduler_pb2.ListNotificationsRequest(page_token="mk-key")
    strange = [(("authorization", value), *CALLER) for value in ("mk-key", f"Bearer {WRONG_KEY}")]
    other, gone = request("sent", "mk-local-other@example.com"), request("gone", "mk-local-gone@example.com")
    calls: list[Awaitable[object]] = [
        *(stub.ScheduleNotification(bad, metadata=metadata) for metadata in (*strange, credentials)),
        *(stub.ScheduleNotification(asked, metadata=credentials) for asked in (other, gone, unrendered)),
        stub.ListNotifications(page, metadata=credentials),
    ]
    told = []
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        told.append(f"{refused.value.details()} {refused.value.trailing_metadata()}")
    return told


async def all_ended(stub: scheduler_pb2_grpc.SchedulerStub, credentials: Credentials) -> bool:
    answer = await stub.ListNotifications(scheduler_pb2.ListNotificationsRequest(), metadata=credentials)
    return {notification.status for notification in answer.notifications} <= {
        notification_pb2.Notification.STATUS_SENT,
        notification_pb2.Notification.STATUS_FAILED,
        notification_pb2.Notification.STATUS_CANCELLED,
    }


def lines(running: Up) -> list[str]:
    return [line for log in running.state.glob("*.log") for line in log.read_text().splitlines()]


async def test_nothing_that_is_told_carries_content_address_key_label_or_reference(state: Path) -> None:
    async with Otlp() as otlp, up(state, EVERYTHING | {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp.endpoint}) as running:
        credentials = (*running.credentials, *CALLER)
        endpoint = await steer(running, credentials)
        async with grpc.aio.insecure_channel(running.address("scheduler")) as channel:
            stub = scheduler_pb2_grpc.SchedulerStub(channel)
            for name, address in ENDS.items():
                await stub.ScheduleNotification(request(name, address), metadata=credentials)
            for other in on_other_channels():
                await stub.ScheduleNotification(other, metadata=credentials)
            templated = await from_a_template(channel, credentials)
            await stub.ScheduleNotification(templated, metadata=credentials)
            told = await provoke(stub, credentials, templated)
            await eventually(lambda: all_ended(stub, credentials), within=60)
        posted = f'"{endpoint.endpoint.endpoint_id}"'
        await eventually(lambda: any("webhook.delivered" in line and posted in line for line in lines(running)))
        await refuse(state)
        assert await running.interrupt() == 0
        logged = lines(running)
        assert any("job.sent" in line for line in logged)
        assert any("job.fail" in line for line in logged)
        assert any("job.retry" in line for line in logged)
        assert any("webhook.delivered" in line for line in logged)
        assert any("notifications_idempotency_key" in line for line in logged), "PostgreSQL's own log is among them"
        kept = [(state / name).read_text() for name in ("secret_key", "webhook_secret", "key", "platform_key")]
        account = json.loads((state / "service_account.json").read_text())
        kept += account["private_key"].splitlines()[1:2]
        secrets = [*kept, WRONG_KEY, endpoint.secret, *(key.rpartition("_")[2] for key in (*kept[2:4], WRONG_KEY))]
        spans, states = without_states(otlp.traces)
        said = [*logged, *told, *map(repr, (*spans, *otlp.metrics))]
        assert not [line for line in said if any(word in line for word in (*MARKERS, *NUMBERS, *secrets))]

        mine = pseudonym(kept[0].strip().encode(), "default", "EMAIL", ENDS["sent"])
        (sent,) = [line for line in map(json_of, logged) if line.get("address_hash") == mine]
        assert (sent["event"], len(sent["trace_id"])) == ("job.sent", 32)
        assert all("request_id" in line for line in map(json_of, logged) if line.get("event") == "rpc.done")
        assert states - {""} == {"shop=mk-state"}, "passed on, as the standard has it"
        collected = b"".join(spans)
        assert all(name in collected for name in (b"Scheduler/ScheduleNotification", b"deliver EMAIL", b"send mail"))
        moved = (metrics.RPC_TIME, metrics.OUTCOMES, metrics.WEBHOOKS, metrics.DEPTH)
        assert {metric.name for metric in moved} <= otlp.measured()


def without_states(requests: list[bytes]) -> tuple[list[bytes], set[str]]:
    """What collectors are told but for the words that callers pass on, and these."""
    found = [ExportTraceServiceRequest.FromString(request) for request in requests]
    states = set()
    for resource in (resource for request in found for resource in request.resource_spans):
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            states |= {span.trace_state, *(link.trace_state for link in span.links)}
            span.trace_state = ""
            for link in span.links:
                link.trace_state = ""
    return [request.SerializeToString() for request in found], states


def json_of(line: str) -> dict[str, Any]:
    """Empty where it is none."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
