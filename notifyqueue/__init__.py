"""The client of Notify Queue: calls that are typed and repeated where that is safe, and proof that a webhook is ours.

    from notifyqueue import EmailContent, ScheduleNotificationRequest, connect

    async with connect("127.0.0.1:50051") as client:
        answer = await client.schedule(
            ScheduleNotificationRequest(
                idempotency_key="order-17-shipped",
                address="you@example.com",
                email=EmailContent(subject="Your order is on its way", text="It left this morning."),
            )
        )

What goes wrong raises a NotifyQueueError (`notifyqueue.errors`). Webhooks are verified by `notifyqueue.webhooks`.
Worker and dispatcher processes are steered by `notifyqueue.processes`. The command line is `notifyqueue.cli`, which
needs the extra `cli`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from notifyqueue.batch import Outcome
    from notifyqueue.client import Client, connect, to_template
    from notifyqueue.errors import NotifyQueueError, Violation
    from notifyqueue.v1.notification_pb2 import (
        Channel,
        EmailContent,
        FailureReason,
        Notification,
        NotificationFilter,
        Priority,
        PushContent,
        SmsContent,
        TemplateContent,
    )
    from notifyqueue.v1.recipients_pb2 import Subscriber, Suppression, SuppressionSource
    from notifyqueue.v1.scheduler_pb2 import ScheduleNotificationRequest, ScheduleNotificationResponse
    from notifyqueue.v1.templates_pb2 import Template, TemplateVariant

__all__ = [
    "Channel",
    "Client",
    "EmailContent",
    "FailureReason",
    "Notification",
    "NotificationFilter",
    "NotifyQueueError",
    "Outcome",
    "Priority",
    "PushContent",
    "ScheduleNotificationRequest",
    "ScheduleNotificationResponse",
    "SmsContent",
    "Subscriber",
    "Suppression",
    "SuppressionSource",
    "Template",
    "TemplateContent",
    "TemplateVariant",
    "Violation",
    "connect",
    "to_template",
]

HOMES = {
    "Outcome": "batch",
    "Client": "client",
    "connect": "client",
    "to_template": "client",
    "NotifyQueueError": "errors",
    "Violation": "errors",
    "ScheduleNotificationRequest": "v1.scheduler_pb2",
    "ScheduleNotificationResponse": "v1.scheduler_pb2",
    "Subscriber": "v1.recipients_pb2",
    "Suppression": "v1.recipients_pb2",
    "SuppressionSource": "v1.recipients_pb2",
    "Template": "v1.templates_pb2",
    "TemplateVariant": "v1.templates_pb2",
}
SUBMODULES = frozenset({"batch", "channel", "client", "errors", "processes", "watch", "webhooks"})

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Once it is wanted: gRPC reads its environment when it is imported, and the command line sets it before that.
        if name in __all__:
            found = getattr(importlib.import_module(f"{__name__}.{HOMES.get(name, 'v1.notification_pb2')}"), name)
        elif name in SUBMODULES:
            found = importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found
