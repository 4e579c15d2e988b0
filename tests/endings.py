"""Notifications that ended some time ago, with all that is about them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg

from tests.notifications import Notifications

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

REASONS = {"FAILED": "MESSAGE_REJECTED", "DEAD_LETTERED": "ATTEMPTS_EXHAUSTED", "SUPPRESSED": "OPTED_OUT"}
NOW = timedelta()

# What an id would have been, some time ago.
AGED_ID = "(left(notifyqueue.first_id(now() - {ago})::text, 14) || substr({id}::text, 15))::uuid"

# Of whose rows a column is the id.
PARENTS = {"notification_id": "notifications", "event_id": "webhook_events", "delivery_id": "webhook_deliveries"}

TABLES = {
    "notifications": "t.id = $1",
    "notification_contents": "t.notification_id = $1",
    "notification_history": "t.notification_id = $1",
    "webhook_events": "t.notification_id = $1",
    "webhook_deliveries": "t.event_id = ANY ($2)",
    "webhook_attempts": "t.delivery_id = ANY ($3)",
}


class Endings:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._notifications = Notifications(connection)
        self._events: dict[UUID, list[UUID]] = {}
        self._deliveries: dict[UUID, list[UUID]] = {}

    async def accept(self, key: str, ago: timedelta, *, expires: bool = False) -> UUID:
        """One that is PENDING, and has a past."""
        id_ = await self._notifications.insert(key, due_in=-ago - timedelta(days=1))
        if expires:
            await self._update(id_, "expire_at = due_at + interval '1 hour'")
        await self.connection.execute(
            "INSERT INTO notifyqueue.notification_history (notification_id, kind) VALUES ($1, 'WAITED')", id_
        )
        self._events[id_], self._deliveries[id_] = [], []
        return id_

    async def end(
        self,
        id_: UUID,
        status: str,
        ago: timedelta,
        *,
        deliveries: Sequence[str] = ("DELIVERED",),
        fanned_out: bool = True,
    ) -> UUID:
        """Answers its event; of its deliveries, each is DELIVERED, GIVEN_UP or OPEN, with an attempt."""
        async with self.connection.transaction():
            await self._update(
                id_,
                f"status = '{status}', finished_at = now() - $2::interval, failure_reason = $3",
                ago,
                REASONS.get(status),
            )
            event: UUID = await self.connection.fetchval(
                f"UPDATE notifyqueue.webhook_events SET id = {AGED_ID.format(ago='$3::interval', id='id')}, "
                "fanned_out_at = CASE WHEN $4 THEN now() END WHERE notification_id = $1 AND status = $2 "
                "AND redrive_count = (SELECT redrive_count FROM notifyqueue.notifications WHERE id = $1) RETURNING id",
                id_,
                status,
                ago,
                fanned_out,
            )
        self._events[id_].append(event)
        if fanned_out:
            self._deliveries[id_] += [await self.deliver(event, end) for end in deliveries]
        return event

    async def deliver(self, event: UUID, end: str) -> UUID:
        """To an endpoint of its own."""
        delivery: UUID = await self.connection.fetchval(
            "INSERT INTO notifyqueue.webhook_deliveries "
            "(event_id, endpoint_id, tenant_id, delivered_at, given_up_at, give_up_reason) VALUES ($1, $2, 'default', "
            "CASE WHEN $3 = 'DELIVERED' THEN now() END, CASE WHEN $3 = 'GIVEN_UP' THEN now() END, "
            "CASE WHEN $3 = 'GIVEN_UP' THEN 'EXHAUSTED' END) RETURNING id",
            event,
            uuid4(),
            end,
        )
        await self.connection.execute(
            "INSERT INTO notifyqueue.webhook_attempts (delivery_id, attempt, started_at, duration, http_status) "
            "VALUES ($1, 1, now(), '1 second', 204)",
            delivery,
        )
        return delivery

    async def ended(self, key: str, status: str = "SENT", ago: timedelta = NOW, *, expires: bool = False) -> UUID:
        id_ = await self.accept(key, ago, expires=expires)
        await self.end(id_, status, ago)
        return id_

    async def redrive(self, id_: UUID) -> None:
        await self._update(
            id_,
            "status = 'PENDING', finished_at = NULL, failure_reason = NULL, redrive_count = redrive_count + 1, "
            "last_redriven_at = now()",
        )

    async def left(self, id_: UUID) -> dict[str, int]:
        """How many rows of each table there still are about it."""
        events, deliveries = self._events[id_], self._deliveries[id_]
        counts = {
            table: await self.connection.fetchval(
                f"SELECT count(*) FROM notifyqueue.{table} AS t "
                f"WHERE {where} AND $1::uuid IS NOT NULL AND $2::uuid[] IS NOT NULL AND $3::uuid[] IS NOT NULL",
                id_,
                events,
                deliveries,
            )
            for table, where in TABLES.items()
        }
        return {table: count for table, count in counts.items() if count}

    async def fill(self, count: int, ago: timedelta, status: str = "SENT") -> None:
        """Many that ended, a millisecond after one another, with an event, a delivery and an attempt each."""
        parameters = {"$1": str(count), "$2": f"interval '{ago.total_seconds()} seconds'", "$3": status}
        for statement in FILL:
            for name, value in parameters.items():
                statement = statement.replace(name, value)
            await self.connection.execute(statement)

    async def orphans(self) -> dict[str, int]:
        """How many rows there are, by column, that name one that is gone."""
        columns = await self.connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'notifyqueue' AND column_name = ANY ($1)",
            list(PARENTS),
        )
        counts = {
            f"{table}.{column}": await self.connection.fetchval(
                f"SELECT count(*) FROM notifyqueue.{table} AS child WHERE NOT EXISTS "
                f"(SELECT FROM notifyqueue.{PARENTS[column]} AS parent WHERE parent.id = child.{column})"
            )
            for table, column in columns
        }
        assert len(counts) >= 5, counts
        return {column: count for column, count in counts.items() if count}

    async def _update(self, id_: UUID, assignments: str, *values: object) -> None:
        await self.connection.execute(f"UPDATE notifyqueue.notifications SET {assignments} WHERE id = $1", id_, *values)


FILL = (
    """
    INSERT INTO notifyqueue.notifications (
      tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at
    )
    SELECT 'default', '$3 ' || n, '', 'EMAIL', 'a@example.com', 2, 5, now() - $2, now()
    FROM generate_series(1, $1) AS n
    """,
    """
    INSERT INTO notifyqueue.notification_contents (notification_id, content)
    SELECT n.id, '{"text": "Hello"}' FROM notifyqueue.notifications AS n WHERE n.idempotency_key LIKE '$3 %'
    """,
    """
    INSERT INTO notifyqueue.notification_history (notification_id, kind)
    SELECT n.id, 'WAITED' FROM notifyqueue.notifications AS n WHERE n.idempotency_key LIKE '$3 %'
    """,
    """
    UPDATE notifyqueue.notifications
    SET status = '$3', finished_at = now() - $2,
      failure_reason = CASE '$3' WHEN 'FAILED' THEN 'MESSAGE_REJECTED' END
    WHERE idempotency_key LIKE '$3 %'
    """,
    f"""
    UPDATE notifyqueue.webhook_events AS e
    SET id = {AGED_ID.format(ago="$2 + row.number * interval '1 ms'", id="e.id")}, fanned_out_at = now(), body = ''
    FROM (
      SELECT v.id, row_number() OVER (ORDER BY v.id) AS number
      FROM notifyqueue.webhook_events AS v
      WHERE v.status = '$3' AND v.fanned_out_at IS NULL
    ) AS row
    WHERE e.id = row.id
    """,
    """
    INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, delivered_at)
    SELECT e.id, e.id, 'default', now() FROM notifyqueue.webhook_events AS e WHERE e.status = '$3' ORDER BY e.id
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO notifyqueue.webhook_attempts (delivery_id, attempt, started_at, duration, http_status)
    SELECT d.id, 1, now(), '1 second', 204 FROM notifyqueue.webhook_deliveries AS d ON CONFLICT DO NOTHING
    """,
)
