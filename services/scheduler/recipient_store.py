"""The statements about recipients: one method each, named like its file in sql/."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from services.scheduler.listing import Scan
from services.scheduler.statistics import BOUND, Count
from services.scheduler.store import MARK, sql
from services.scheduler.subscribers import Draft, Place, Subscriber
from services.scheduler.suppressions import Ban, Filter, Order, Report, Suppression
from shared.database import Executor
from shared.paging import Page


class RecipientStore:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def read_region(self, tenant: str) -> str | None:
        rows = await self._executor.fetch(sql["read_region"], tenant)
        return rows[0]["region"] if rows else None

    async def put_subscriber(self, tenant: str, draft: Draft) -> tuple[Subscriber, bool]:
        """As it is stored, and whether it was so before."""
        args = (draft.name, draft.email, draft.phone, draft.push, draft.locale, draft.time_zone)
        (row,) = await self._executor.fetch(sql["put_subscriber"], tenant, *args)
        return _subscriber(row), row["unchanged"]

    async def read_subscriber(self, tenant: str, name: str) -> Subscriber | None:
        rows = await self._executor.fetch(sql["read_subscriber"], tenant, name)
        return _subscriber(rows[0]) if rows else None

    async def list_subscribers(self, tenant: str, place: Place | None, page: Page) -> Sequence[Subscriber]:
        asked = (place.address,) if place else ()
        rows = await self._executor.fetch(having(place), tenant, page.before, page.size, *asked)
        return [_subscriber(row) for row in rows]

    async def put_suppression(self, tenant: str, ban: Ban, actor: str) -> tuple[Suppression, bool] | None:
        """As it is stored, and whether it was before. None: somebody has put it meanwhile."""
        args = (ban.channel, ban.address, ban.subscriber, ban.pseudonym, ban.category, ban.source, actor)
        rows = await self._executor.fetch(sql["put_suppression"], tenant, *args)
        return (_suppression(rows[0]), rows[0]["unchanged"]) if rows else None

    async def find_writers(self) -> set[str]:
        return {row["virtualtransaction"] for row in await self._executor.fetch(sql["find_writers"])}

    async def count_in_flight(self, tenant: str, ban: Ban) -> int:
        args = (ban.channel, ban.address, ban.subscriber, ban.pseudonym, ban.category, ban.source)
        rows = await self._executor.fetch(sql["count_in_flight"], tenant, *args)
        count: int = rows[0]["count"]
        return count

    async def list_suppressions(
        self, tenant: str, filter_: Filter, page: Page
    ) -> tuple[Sequence[Suppression], UUID | None]:
        """The page; where it is short, also the id below which there may be more."""
        asked = (
            filter_.channel,
            filter_.address,
            filter_.pseudonym,
            filter_.category,
            filter_.source,
            filter_.subscriber,
        )
        rows = await self._executor.fetch(
            led(sql["list_suppressions"], filter_), tenant, page.before, page.size, *asked
        )
        return [_suppression(row) for row in rows if row["id"]], rows[0]["scan_end"]

    async def delete_suppression(self, tenant: str, ban: Ban) -> UUID | None:
        """Its id; None where there was none."""
        args = (ban.channel, ban.address, ban.subscriber, ban.pseudonym, ban.category, ban.source)
        rows = await self._executor.fetch(sql["delete_suppression"], tenant, *args)
        return rows[0]["id"] if rows else None

    async def delete_suppressions(self, tenant: str, order: Order, scan: Scan) -> Report:
        args = (order.source, order.since, scan.before, scan.after, order.limit, order.dry_run)
        (row,) = await self._executor.fetch(sql["delete_suppressions"], tenant, *args)
        remaining = Count(min(row["remaining"], BOUND), at_least=row["remaining"] > BOUND)
        return Report(row["deleted"], remaining, row["scan_end"] if remaining.count else None)


def led(statement: str, filter_: Filter) -> str:
    """The statement with the condition that the leading index answers; hidden from the planner, as in store.py."""
    condition = ""
    if filter_.address is not None:
        condition = "AND s.address = ANY (ARRAY[(SELECT notifyqueue.suppressed_form($4, $5)), (SELECT $6)])"
    elif filter_.subscriber is not None:
        condition = "AND s.subscriber = (SELECT $9)"
    elif filter_.source is not None:
        condition = "AND s.source = $8"
    return statement.replace(MARK, condition)


# By channel, the condition that an index answers.
HAVING: Mapping[str, str] = {
    "EMAIL": "AND lower(s.email) = (SELECT notifyqueue.suppressed_form('EMAIL', $4))",
    "SMS": "AND s.phone = (SELECT $4)",
    "PUSH": "AND s.push = (SELECT $4)",
}


def having(place: Place | None) -> str:
    """The statement that lists those with this address."""
    return sql["list_subscribers"].replace(MARK, HAVING[place.channel] if place else "")


def _subscriber(row: Any) -> Subscriber:
    return Subscriber(**{name: row[name] for name in Subscriber.__slots__})


def _suppression(row: Any) -> Suppression:
    return Suppression(
        id=row["id"],
        channel=row["channel"],
        address=row["address"],
        subscriber=row["subscriber"],
        erased=row["erased"],
        category=row["category"],
        source=row["source"],
        code=row["code"],
        actor=row["actor"],
        created_at=row["created_at"],
    )
