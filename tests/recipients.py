"""Recipients whose tenant limits what each gets, as tests look at them."""

import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import TypeAlias
from uuid import UUID

import asyncpg

from services.worker.providers import Handover, Message, Outcome
from shared.pseudonym import pseudonym
from tests.notifications import Notifications
from tests.providers import ScriptedProvider

PSEUDONYMS = partial(pseudonym, b"a secret key that only tests have")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def limit(notifications: Notifications, count: int | None, window: timedelta | None) -> None:
    """As the owner sets it for the tenant `default`."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.tenants SET recipient_limit = $1, recipient_window = $2 WHERE id = 'default'",
        count,
        window,
    )


def most_in_a_window(starts: Iterable[tuple[float, UUID]], window: timedelta) -> int:
    """How many notifications started in the fullest window, wherever it begins."""
    ordered = sorted(starts)
    return max(
        len({id_ for at, id_ in ordered if first <= at < first + window.total_seconds()}) for first, _ in ordered
    )


class TimedProvider(ScriptedProvider):
    """Its own record of when each call came."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: defaultdict[str, list[tuple[float, UUID]]] = defaultdict(list)

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        self.calls[message.address].append((time.monotonic(), message.delivery_key))
        return await super().deliver(message, handover)

    def order(self, address: str) -> list[UUID]:
        return [id_ for _, id_ in self.calls[address]]


async def waiting(notifications: Notifications) -> int:
    count: int = await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.notifications WHERE waiting")
    return count


async def gates(notifications: Notifications) -> int:
    count: int = await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.recipient_gates")
    return count


async def most_claims(notifications: Notifications) -> int:
    """Of one notification that has ended: its attempts, and each time that it was put to wait."""
    most: int = await notifications.connection.fetchval(
        "SELECT max(n.attempt_count + (SELECT count(*) FROM notifyqueue.notification_history AS h"
        " WHERE h.notification_id = n.id AND h.kind = 'WAITED')) FROM notifyqueue.notifications AS n"
    )
    return most
