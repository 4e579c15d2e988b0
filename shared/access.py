"""Who may call what: one line per RPC. A test fails for an RPC that is served without one, and nobody may call it.

SENDER     lets notifications be sent, and asks about those it can name. It does not list: a list by address would be
           a directory of customers.
OPERATOR   looks after its tenant's notifications.
ADMIN      decides where its tenant's events go, too.
PLATFORM   runs the processes and lanes that all tenants share. It has no tenant, and may do nothing that is a tenant's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    SENDER = "SENDER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"
    PLATFORM = "PLATFORM"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as far as it is known."""

    actor: str = ""
    """As histories and logs name it: `key:<id>`, or `anonymous`."""
    tenant: str | None = None
    """None: a PLATFORM key."""
    role: Role | None = None

    @property
    def sees_platform(self) -> bool:
        """Whether it may know what all tenants share: a PLATFORM key, and anybody where there are none."""
        return self.role in (None, Role.PLATFORM)


NOBODY = Caller()

SENDERS = frozenset({Role.SENDER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
PLATFORM = frozenset({Role.PLATFORM})

ACCESS: Mapping[str, frozenset[Role]] = {
    "notifyqueue.v1.Scheduler/ScheduleNotification": SENDERS,
    "notifyqueue.v1.Scheduler/BatchScheduleNotifications": SENDERS,
    "notifyqueue.v1.Scheduler/GetNotification": SENDERS,
    "notifyqueue.v1.Scheduler/WatchNotification": SENDERS,
    "notifyqueue.v1.Scheduler/CancelNotification": SENDERS,
    "notifyqueue.v1.Scheduler/RescheduleNotification": SENDERS,
    "notifyqueue.v1.Scheduler/ListNotifications": OPERATORS,
    "notifyqueue.v1.Scheduler/BulkCancelNotifications": OPERATORS,
    "notifyqueue.v1.Scheduler/RedriveNotification": OPERATORS,
    "notifyqueue.v1.Scheduler/BulkRedriveNotifications": OPERATORS,
    "notifyqueue.v1.Scheduler/GetQueueStats": OPERATORS | PLATFORM,
    "notifyqueue.v1.Scheduler/PauseLane": PLATFORM,
    "notifyqueue.v1.Scheduler/ResumeLane": PLATFORM,
    "notifyqueue.v1.Templates/PutTemplate": OPERATORS,
    "notifyqueue.v1.Templates/GetTemplate": OPERATORS,
    "notifyqueue.v1.Templates/ListTemplates": OPERATORS,
    "notifyqueue.v1.Templates/DeleteTemplate": OPERATORS,
    "notifyqueue.v1.Templates/RenderTemplate": OPERATORS,
    "notifyqueue.v1.Recipients/PutSubscriber": OPERATORS,
    "notifyqueue.v1.Recipients/GetSubscriber": OPERATORS,
    "notifyqueue.v1.Recipients/ListSubscribers": OPERATORS,
    "notifyqueue.v1.Recipients/DeleteSubscriber": OPERATORS,
    "notifyqueue.v1.Recipients/PutSuppression": OPERATORS,
    "notifyqueue.v1.Recipients/ListSuppressions": OPERATORS,
    "notifyqueue.v1.Recipients/DeleteSuppression": OPERATORS,
    "notifyqueue.v1.Recipients/BulkDeleteSuppressions": OPERATORS,
    "notifyqueue.v1.WebhookDispatcher/CreateEndpoint": ADMINS,
    "notifyqueue.v1.WebhookDispatcher/ListEndpoints": ADMINS,
    "notifyqueue.v1.WebhookDispatcher/DeleteEndpoint": ADMINS,
    "notifyqueue.v1.WebhookDispatcher/GetDispatcherStatus": PLATFORM,
    "notifyqueue.v1.WebhookDispatcher/DrainDispatcher": PLATFORM,
    "notifyqueue.v1.WebhookDispatcher/ResumeDispatcher": PLATFORM,
    "notifyqueue.v1.Worker/GetWorkerStatus": PLATFORM,
    "notifyqueue.v1.Worker/DrainWorker": PLATFORM,
    "notifyqueue.v1.Worker/ResumeWorker": PLATFORM,
}


def permits(method: str, role: Role | None) -> bool:
    """`method` is named `<package>.<service>/<RPC>`."""
    return role in ACCESS.get(method, ())
