"""What a caller may still change: each change is one conditional update, and the answer is what it did."""

from typing import Protocol
from uuid import UUID

from services.scheduler.notification import Notification
from shared.errors import ResourceNotFound, StatusConflict


class Store(Protocol):
    async def find_id(self, tenant: str, idempotency_key: str) -> UUID | None: ...
    async def read_notification(self, tenant: str, notification_id: UUID) -> Notification | None: ...
    async def cancel_notification(self, tenant: str, notification_id: UUID, actor: str, note: str) -> str | None: ...


async def resolve(store: Store, tenant: str, key: UUID | str) -> UUID:
    """The id behind an id or an idempotency key. Raises ResourceNotFound."""
    found = key if isinstance(key, UUID) else await store.find_id(tenant, key)
    if found is None:
        raise ResourceNotFound("notification")
    return found


async def get(store: Store, tenant: str, key: UUID | str) -> Notification:
    """Raises ResourceNotFound."""
    found = await store.read_notification(tenant, await resolve(store, tenant, key))
    if found is None:
        raise ResourceNotFound("notification")
    return found


async def cancel(store: Store, tenant: str, key: UUID | str, *, actor: str, note: str) -> Notification:
    """The cancelled notification; cancelling it again changes nothing. Raises ResourceNotFound, StatusConflict."""
    notification_id = await resolve(store, tenant, key)
    status = await store.cancel_notification(tenant, notification_id, actor, note)
    if status not in (None, "PENDING", "CANCELLED"):
        raise StatusConflict(notification_id, status)
    return await get(store, tenant, notification_id)
