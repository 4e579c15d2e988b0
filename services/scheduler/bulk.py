"""Cancelling by a filter: what fits is found a slice at a time, newest first, and ended a slice at a time.

So a call holds no lock for longer than its slice takes, and what it has ended stays so when it stops early. The next
one goes on where it stopped: from the newest on, each would look through what those before it have looked through.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

import structlog

from services.scheduler.changes import By
from services.scheduler.faults import Faults
from services.scheduler.listing import Filter, Regions, Scan, locate, scan_of
from services.scheduler.statistics import BOUND, Count
from shared.paging import NEWEST

log = structlog.get_logger()

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Order:
    """What to cancel: at most `limit` of what fits the filter."""

    filter_: Filter
    limit: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Report:
    """How many were cancelled, or would be, and how many more fit."""

    cancelled: int
    remaining: Count
    end: UUID | None = None
    """Below it there may be some that nobody has tried to cancel; None: there are none."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How many were cancelled, and whether some were passed over because somebody held them."""

    count: int
    passed_over: bool = False


class Store(Regions, Protocol):
    async def find_pending(self, tenant: str, filter_: Filter, scan: Scan) -> tuple[Sequence[UUID], UUID | None]: ...
    async def cancel_notifications(self, tenant: str, ids: Sequence[UUID], actor: str, note: str) -> Ended: ...


def limit_of(faults: Faults, filter_: Filter, limit: int, statuses: Sequence[str] = ("PENDING",)) -> int:
    """How many at most, after a look at whether it may be done at all, to what is in one of these statuses."""
    if filter_.status not in (None, *statuses):
        named = " or ".join(f"STATUS_{status}" for status in statuses)
        faults.add("filter.status", f"must be {named}, or left out")
    if replace(filter_, status=None) == Filter():
        faults.add("filter", "needs a condition, besides the status")
    if not 0 <= limit <= MAX_LIMIT:
        faults.add("limit", f"must be from 1 to {MAX_LIMIT}, or 0 for {DEFAULT_LIMIT}")
    return limit or DEFAULT_LIMIT


async def cancel(
    store: Store, tenant: str, order: Order, by: By, *, before: UUID = NEWEST, has_time: Callable[[], bool]
) -> Report:
    """`has_time` is asked after each slice, and each part of one, whether there shall be another.

    Raises RequestInvalid.
    """
    filter_ = await locate(store, tenant, order.filter_)
    report = await _cancel(store, tenant, order, filter_, by, before, has_time)
    if not order.dry_run:
        log.info("jobs.cancelled", count=report.cancelled, by_address=filter_.address is not None, actor=by.actor)
    return report


async def _cancel(
    store: Store, tenant: str, order: Order, filter_: Filter, by: By, before: UUID, has_time: Callable[[], bool]
) -> Report:
    scan: Scan | None = scan_of(filter_, before)
    cancelled = remaining = 0
    passed_over = False
    stopped: UUID | None = None
    while scan:
        ids, end = await store.find_pending(tenant, filter_, scan)
        # Some of a part may have been taken meanwhile: then older ones take their places.
        while ids and stopped is None:
            room = order.limit - cancelled
            part, ids = ids[:room], ids[room:]
            ended = (
                Ended(len(part)) if order.dry_run else await store.cancel_notifications(tenant, part, by.actor, by.note)
            )
            cancelled += ended.count
            passed_over = passed_over or ended.passed_over
            if cancelled >= order.limit or (ids and not has_time()):
                stopped = part[-1]
        remaining += len(ids)
        if remaining > BOUND or (end and not has_time()):
            return Report(cancelled, Count(min(remaining, BOUND), at_least=True), stopped or end)
        scan = replace(scan, before=end) if end else None
    return Report(cancelled, Count(remaining, at_least=passed_over), stopped if remaining else None)
