"""Thousands at one recipient's gate, through several windows and a pause, judged by the provider's own record."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from services.worker.admission import Admission, Entry, Ticket
from services.worker.claim import Claim
from services.worker.providers import Handover, Message, Outcome
from shared.clock import tick
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.recipients import gates, limit, most_in_a_window
from tests.waiting import eventually

WAITING, LIMIT, WINDOW = 5_000, 250, timedelta(seconds=1)
WORKERS, CONCURRENCY = 2, 256
LATENESS = WINDOW / 10  # how much later than its start a call may come (docs/architecture.md)
# A lease that no busy machine lets pass: whoever lost one would be claimed once more.
OFTEN: dict[str, Any] = {"poll_interval": 0.2, "worker_concurrency": CONCURRENCY, "lease": 60.0}


class Ledger(ScriptedProvider):
    """Calls, by the clock of this machine, which is the database's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[float, UUID]] = []

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        self.calls.append((time.time(), message.delivery_key))
        return await super().deliver(message, handover)


class Asked:
    """Asks for admission, each held up on the way by another time; knows who was held up after its start as well."""

    def __init__(self) -> None:
        self._ask = Admission.ask
        self._stamped: dict[tuple[UUID, UUID], float] = {}
        self.held_up = Counter[UUID]()
        """How often it was put to wait once more, because its call would have come a whole window after its start."""

    async def ask(self, admission: Admission, claim: Claim) -> Ticket:
        await asyncio.sleep(random.uniform(0, 0.05))
        ticket = await self._ask(admission, claim)
        if ticket.entry is Entry.STARTS:
            self._stamped[claim.claim_token, claim.notification_id] = ticket.good_until - LATENESS.total_seconds()
        elif (stamped := self._stamped.get((claim.claim_token, claim.notification_id))) is not None:
            assert tick() - stamped > WINDOW.total_seconds()
            self.held_up[claim.notification_id] += 1
        return ticket


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(Admission, "ask", lambda *args: asked.ask(*args))
    return asked


async def fill(notifications: Notifications) -> Sequence[UUID]:
    """In the order in which they are due."""
    rows = await notifications.connection.fetch(
        "WITH written AS (INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel,"
        " address, priority, max_attempts, due_at, next_attempt_at)"
        " SELECT 'default', n::text, '', 'EMAIL', 'hot@example.com', 2, 5, now() - $1::interval + n * interval '1 ms',"
        " now() - $1::interval + n * interval '1 ms' FROM generate_series(1, $2::int) AS n RETURNING id, due_at),"
        " contents AS (INSERT INTO notifyqueue.notification_contents"
        """ SELECT w.id, '{"subject": "Hello", "text": "How are you?"}' FROM written AS w)"""
        " SELECT id FROM written ORDER BY due_at",
        timedelta(minutes=1),
        WAITING,
    )
    return [row["id"] for row in rows]


async def pause(notifications: Notifications, *, paused: bool) -> None:
    said = "now(), 'key:1', 'r'" if paused else "NULL, NULL, NULL"
    await notifications.connection.execute(
        f"UPDATE notifyqueue.lanes SET (paused_at, paused_by, pause_reason) = ({said}); NOTIFY notifyqueue_lanes"
    )


async def test_five_thousand_are_claimed_twice_at_most_in_their_order_and_no_window_holds_more_than_its_limit(
    notifications: Notifications, start_worker: StartWorker, database_url: str, asked: Asked
) -> None:
    await limit(notifications, LIMIT, WINDOW)
    due = await fill(notifications)
    ledger = Ledger()
    for _ in range(WORKERS):
        await start_worker(database_url, ledger, **OFTEN)
    await eventually(lambda: len(ledger.calls) >= WAITING // 3, within=120)
    await pause(notifications, paused=True)

    async def calls_nobody_up() -> bool:
        """For longer than a window."""
        still: bool = await notifications.connection.fetchval(
            "SELECT bool_and(g.opens_at < now() - interval '0.5 s')"
            " AND NOT EXISTS (SELECT FROM notifyqueue.notifications AS n WHERE n.status = 'PROCESSING')"
            " FROM notifyqueue.recipient_gates AS g"
        )
        return still

    await eventually(calls_nobody_up, within=60)
    called = len(ledger.calls)
    await pause(notifications, paused=False)

    async def all_sent() -> bool:
        return await notifications.statuses() == {"SENT": WAITING}

    await eventually(all_sent, within=240)
    order = [id_ for _, id_ in ledger.calls]
    assert called < len(order) == len(set(order)) == WAITING
    assert most_in_each_window(ledger.calls) <= LIMIT
    assert await claimed_too_often(notifications, asked) == []
    assert await gates(notifications) == 0
    assert await moved(notifications) == set()
    # What is under way at once starts in any order. Whom a busy machine held up stood in the queue again.
    place = {id_: number for number, id_ in enumerate(id_ for id_ in due if id_ not in asked.held_up)}
    kept = [id_ for id_ in order if id_ in place]
    assert max(abs(place[id_] - number) for number, id_ in enumerate(kept)) <= LIMIT + WORKERS * CONCURRENCY
    assert await begin_before_their_calls(notifications, {id_: at for at, id_ in ledger.calls})


async def moved(notifications: Notifications) -> set[UUID]:
    rows = await notifications.connection.fetch(
        "SELECT id FROM notifyqueue.notifications WHERE next_attempt_at <> due_at"
    )
    return {row["id"] for row in rows}


async def claimed_too_often(notifications: Notifications, asked: Asked) -> list[UUID]:
    """Once to be put to wait, once to start; a machine that stands still for a whole window is no fault of the gate."""
    rows = await notifications.connection.fetch(
        "SELECT n.id, n.attempt_count + (SELECT count(*) FROM notifyqueue.notification_history AS h"
        " WHERE h.notification_id = n.id AND h.kind = 'WAITED') AS claims FROM notifyqueue.notifications AS n"
    )
    return [row["id"] for row in rows if row["claims"] > 2 + asked.held_up[row["id"]]]


def most_in_each_window(calls: Sequence[tuple[float, UUID]]) -> int:
    """As `most_in_a_window`, without looking at all of them for each."""
    ordered = sorted(calls)
    return max(
        most_in_a_window(ordered[first : first + 2 * LIMIT], WINDOW) for first in range(0, len(ordered), LIMIT // 2)
    )


async def begin_before_their_calls(notifications: Notifications, calls: dict[UUID, float]) -> bool:
    """By the database's own record of the starts of the last windows; retention has had the others."""
    rows = await notifications.connection.fetch(
        "SELECT notification_id AS id, extract(epoch FROM started_at)::float8 AS at"
        " FROM notifyqueue.recipient_reservations"
    )
    return bool(rows) and all(row["at"] <= calls[row["id"]] for row in rows)
