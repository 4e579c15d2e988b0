"""Whoever changes what somebody else has accepted is recorded with the key that did it, and why."""

from typing import Any

import pytest

from shared.access import Role
from tests.integration.conftest import stack
from tests.integration.test_auth import keyed, owner
from tests.integration.test_redrive import DEAD
from tests.keyed import Keyed, Owner, bearer
from tests.notifications import Notifications

__all__ = ["keyed", "owner", "stack"]

SCHEDULER = "notifyqueue.v1.Scheduler"
FILTER = {"filter": {"channel": "CHANNEL_EMAIL"}}
REDRIVES: dict[str, dict[str, Any]] = {
    "RedriveNotification": {"idempotency_key": "order-1"},
    "BulkRedriveNotifications": FILTER,
}


@pytest.mark.parametrize("method", REDRIVES)
async def test_a_redrive_is_recorded_with_its_actor_and_its_reason(
    keyed: Keyed, owner: Owner, notifications: Notifications, method: str
) -> None:
    id_ = await notifications.insert("order-1", **DEAD)
    key = await owner.key(Role.OPERATOR)
    request = REDRIVES[method] | {"reason": "the provider is back"}
    assert not await keyed.told(f"{SCHEDULER}/{method}", bearer(key), request)
    (entry,) = await notifications.history(id_)
    assert (entry["kind"], entry["actor"], entry["note"]) == ("REDRIVEN", f"key:{key.id}", "the provider is back")
