"""The statements about recipients: one method each, named like its file in sql/."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from services.scheduler.listing import Scan
from services.scheduler.statistics import BOUND, Count
from services.scheduler.store import MARK, sql
from services.scheduler.suppressions import Ban, Filter, Order, Report, Suppression
from shared.database import Executor
from shared.paging import Page


class RecipientStore:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def read_region(self, tenant: str) -> str | None:
        rows = await self._executor.fetch(sql["read_region"], tenant)
        return rows[0]["region"] if rows else None

    async def put_suppression(self, tenant: str, ban: Ban, actor: str) -> tuple[Suppression, bool] | None:
        """As it is stored, and whether it was before. None: somebody has put it meanwhile."""
        rows = await self._executor.fetch(sql["put_suppression"], tenant, *_told(ban), actor)
        return (_suppression(rows[0]), rows[0]["unchanged"]) if rows else None

    async def find_writers(self) -> set[str]:
        return {row["virtualtransaction"] for row in await self._executor.fetch(sql["find_writers"])}

    async def count_in_flight(self, tenant: str, ban: Ban) -> int:
        rows = await self._executor.fetch(sql["count_in_flight"], tenant, *_told(ban))
        count: int = rows[0]["count"]
        return count

    async def list_suppressions(
        self, tenant: str, filter_: Filter, page: Page
    ) -> tuple[Sequence[Suppression], UUID | None]:
        """The page; where it is short, also the id below which there may be more."""
        asked = (filter_.channel, filter_.address, filter_.category, filter_.source)
        rows = await self._executor.fetch(
            led(sql["list_suppressions"], filter_), tenant, page.before, page.size, *asked
        )
        return [_suppression(row) for row in rows if row["id"]], rows[0]["scan_end"]

    async def delete_suppression(self, tenant: str, ban: Ban) -> UUID | None:
        """Its id; None where there was none."""
        rows = await self._executor.fetch(sql["delete_suppression"], tenant, *_told(ban))
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
        condition = "AND s.address = (SELECT notifyqueue.suppressed_form($4, $5))"
    elif filter_.source is not None:
        condition = "AND s.source = $7"
    return statement.replace(MARK, condition)


def _told(ban: Ban) -> tuple[str, str, str, str]:
    return ban.channel, ban.address, ban.category, ban.source


def _suppression(row: Any) -> Suppression:
    return Suppression(
        id=row["id"],
        channel=row["channel"],
        address=row["address"],
        category=row["category"],
        source=row["source"],
        code=row["code"],
        actor=row["actor"],
        created_at=row["created_at"],
    )
