"""However an address is spelled, it is one: for opt-outs, for lists, and for what a recipient may get in a window."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import uuid4

from notifyqueue.v1 import notification_pb2, recipients_pb2, recipients_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from services.worker.store import Store
from shared import suppression
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.integration.test_suppressions import reason, schedule
from tests.notifications import Notifications

# The spellings of one each, and the lane that it is on.
FAMILIES: Mapping[str, tuple[str, Sequence[str]]] = {
    "case": ("EMAIL", ["Ann.Lee@X.org", "ann.lee@x.ORG", "ANN.LEE@x.org"]),
    "domain": ("EMAIL", ["info@BÜCHER.example", "info@bücher.example", "INFO@xn--bcher-kva.example"]),
    "number": ("SMS", ["07700 900 123", "+44 7700 900123", "+44(0)7700900123", "+447700900123"]),
}
# As the database has it, and as a worker has it; letters beyond ASCII keep their case.
FORMS = ["Ann.Lee@x.org", "ÄNN@x.org", "İ@x.org", "phone-A", "+447700900123", ""]


async def test_all_spellings_of_an_address_are_one_key_for_opt_outs_lists_and_limits(
    start_scheduler: StartScheduler, notifications: Notifications, database_url: str
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    channel = await start_scheduler(database_url)
    scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
    async with Database(login(database_url, "worker"), name="test", size=1) as database:
        for family, (lane, spellings) in FAMILIES.items():
            lane_ = notification_pb2.Channel.Value(f"CHANNEL_{lane}")
            content = {"sms": {"text": "Hello"}} if lane == "SMS" else {}
            for spelling in spellings:
                assert await reason(scheduler, schedule(f"{family} {spelling}", address=spelling, **content)) == ""
            for spelling in spellings:
                asked = scheduler_pb2.ListNotificationsRequest(
                    filter=notification_pb2.NotificationFilter(channel=lane_, address=spelling)
                )
                listed = (await scheduler.ListNotifications(asked)).notifications
                assert [one.idempotency_key for one in reversed(listed)] == [f"{family} {one}" for one in spellings]
            claims = await Store(database).claim_due(
                lane,
                limit=8,
                classes=[2],
                due_for=timedelta(),
                token=uuid4(),
                worker_id=uuid4(),
                lease=timedelta(minutes=1),
                take_suspect=False,
            )
            assert (len(claims), len({claim.recipient for claim in claims})) == (len(spellings), 1)
            out = recipients_pb2.PutSuppressionRequest(
                channel=lane_, address=spellings[0], source=recipients_pb2.SUPPRESSION_SOURCE_OPTED_OUT
            )
            put = await recipients_pb2_grpc.RecipientsStub(channel).PutSuppression(out)
            assert put.in_flight.count == len(spellings)
            for spelling in spellings:
                assert await reason(scheduler, schedule("new", address=spelling, **content)) == "RECIPIENT_OPTED_OUT"
    for lane in ("EMAIL", "SMS", "PUSH"):
        rows = await notifications.connection.fetch(
            "SELECT notifyqueue.suppressed_form($1, a) AS form FROM unnest($2::text[]) AS a", lane, FORMS
        )
        assert [row["form"] for row in rows] == [suppression.form(lane, address) for address in FORMS]
