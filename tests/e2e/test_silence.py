"""No log says who was told what: markers planted in everything personal are in no line of any process."""

import json
from pathlib import Path

import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.e2e.conftest import Up, up
from tests.waiting import eventually

MARKERS = ("mk-subject", "mk-body", "mk-key", "mk-label", "mk-reference", "mk-header", "mk-name", "mk-local")
WRONG_KEY = "nq_0123456789ab_" + "c0ffee" * 10 + "c0ff"
ENDS = {
    "sent": "mk-local-sent@example.com",
    "refused": "reject+mk-local-refused@example.com",
    "retried": "451x1+mk-local-retried@example.com",
}

# One whose first answer is lost, and one that is refused.
NUMBERS = ("+12025550191", "+15005550001")

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


async def provoke(stub: scheduler_pb2_grpc.SchedulerStub, credentials: Credentials) -> None:
    """What is refused at the door, and what is asked for twice."""
    bad = request("bad", "mk-local")
    for strange in ("mk-key", f"Bearer {WRONG_KEY}"):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ScheduleNotification(bad, metadata=(("authorization", strange),))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ScheduleNotification(bad, metadata=credentials)
    assert not any(marker in str(refused.value.details()) for marker in MARKERS)
    other = request("sent", "mk-local-other@example.com")
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.ScheduleNotification(other, metadata=credentials)
    page = scheduler_pb2.ListNotificationsRequest(page_token="mk-key")
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.ListNotifications(page, metadata=credentials)


async def all_ended(stub: scheduler_pb2_grpc.SchedulerStub, credentials: Credentials) -> bool:
    answer = await stub.ListNotifications(scheduler_pb2.ListNotificationsRequest(), metadata=credentials)
    return {notification.status for notification in answer.notifications} <= {
        notification_pb2.Notification.STATUS_SENT,
        notification_pb2.Notification.STATUS_FAILED,
    }


def lines(running: Up) -> list[str]:
    return [line for log in running.state.glob("*.log") for line in log.read_text().splitlines()]


async def test_no_log_carries_content_address_key_label_or_reference(state: Path) -> None:
    async with up(state, {"NOTIFYQUEUE_LOG_LEVEL": "DEBUG", "SANDBOX_LOG_LEVEL": "DEBUG"}) as running:
        async with grpc.aio.insecure_channel(running.address("scheduler")) as channel:
            stub = scheduler_pb2_grpc.SchedulerStub(channel)
            for name, address in ENDS.items():
                await stub.ScheduleNotification(request(name, address), metadata=running.credentials)
            for other in on_other_channels():
                await stub.ScheduleNotification(other, metadata=running.credentials)
            await provoke(stub, running.credentials)
            await eventually(lambda: all_ended(stub, running.credentials), within=60)
        assert await running.interrupt() == 0
        logged = lines(running)
        assert any("job.sent" in line for line in logged)
        assert any("job.fail" in line for line in logged)
        assert any("job.retry" in line for line in logged)
        assert any("webhook.delivered" in line for line in logged)
        kept = [(state / name).read_text() for name in ("secret_key", "webhook_secret", "key", "platform_key")]
        account = json.loads((state / "service_account.json").read_text())
        kept += account["private_key"].splitlines()[1:2]
        secrets = [*kept, WRONG_KEY, *(key.rpartition("_")[2] for key in (*kept[2:4], WRONG_KEY))]
        assert not [line for line in logged if any(word in line for word in (*MARKERS, *NUMBERS, *secrets))]
