"""Lists, newest first: one index leads, the rest of the filter is applied to at most 10,000 rows a page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from services.scheduler.notification import Notification
from services.scheduler.phones import in_region, is_national
from shared.errors import RequestInvalid, Violation
from shared.paging import NEWEST, Page

SCANNED = 10_000  # the literal in sql/list_notifications.sql and sql/find_pending.sql

# An id's time is read a moment before its row's, and the database's clock may step back a little.
SLACK = timedelta(minutes=1)
OLDEST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Filter:
    """What must match, where it is set."""

    status: str | None = None
    channel: str | None = None
    address: str | None = None
    reference: str | None = None
    subscriber: str | None = None
    created_since: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """Ids from `after` up to, and without, `before`."""

    before: UUID
    after: UUID


class Regions(Protocol):
    async def read_region(self, tenant: str) -> str | None: ...


class Store(Regions, Protocol):
    async def list_notifications(
        self, tenant: str, filter_: Filter, scan: Scan, limit: int
    ) -> tuple[Sequence[Notification], UUID | None]: ...


async def list_page(
    store: Store, tenant: str, filter_: Filter, page: Page
) -> tuple[Sequence[Notification], UUID | None]:
    """A page, and the id below which the next one begins. A short or empty page need not be the last."""
    located = await locate(store, tenant, filter_)
    rows, end = await store.list_notifications(tenant, located, scan_of(filter_, page.before), page.size)
    return rows, rows[-1].id if len(rows) == page.size else end


async def locate(store: Regions, tenant: str, filter_: Filter) -> Filter:
    """The filter with the region of a national telephone number filled in. Raises RequestInvalid."""
    if filter_.address is None or not is_national(filter_.channel or "", filter_.address):
        return filter_
    try:
        return replace(filter_, address=in_region(filter_.address, await store.read_region(tenant)))
    except ValueError as error:
        raise RequestInvalid([Violation("filter.address", str(error))]) from None


def scan_of(filter_: Filter, before: UUID = NEWEST) -> Scan:
    """The ids below `before` that the filter's times leave: an id begins with its time (RFC 9562, 5.7)."""
    if filter_.created_before:
        before = min(before, first_id(filter_.created_before, SLACK))
    return Scan(before, first_id(filter_.created_since, -SLACK) if filter_.created_since else OLDEST)


def first_id(time: datetime, slack: timedelta) -> UUID:
    # Not added to the time, which may be the last or the first that there is.
    milliseconds = int((time.timestamp() + slack.total_seconds()) * 1000)
    return UUID(int=min(max(0, milliseconds) << 80, NEWEST.int))


def leading(filter_: Filter) -> Filter:
    """What the chosen index answers by itself: the most selective that is set."""
    for name in ("reference", "subscriber", "address", "status"):
        if getattr(filter_, name) is not None:
            return replace(Filter(), **{name: getattr(filter_, name)})
    return Filter()
