"""Sending back what died, at an operator's word: one, or by a filter, with their turns spread over a span of time.

By a filter they are found first and then sent back, oldest first, so that the span is divided by how many there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from services.scheduler import bulk, changes
from services.scheduler.changes import By
from services.scheduler.faults import Faults
from services.scheduler.listing import Filter, Scan, locate, scan_of
from services.scheduler.notification import Notification
from services.scheduler.statistics import BOUND, Count
from shared.errors import NoLongerSendable, ResourceNotFound, StatusConflict

log = structlog.get_logger()

STATUSES = ("DEAD_LETTERED", "FAILED")
MAX_SPREAD = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Dead:
    """A dead notification as it was found; of another revision, it is another's."""

    id: UUID
    revision: int | None
    """None: whatever it has."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How a redrive found a notification, and what stood against it: STATUS, EXPIRED or CONTENT_ERASED."""

    channel: str
    status: str
    redrive_count: int
    obstacle: str | None


@dataclass(frozen=True, slots=True)
class Slice:
    """What was found of a scan, what was passed over, and the last id that was looked at, if there may be more."""

    dead: Sequence[Dead]
    passed_over: Sequence[UUID]
    end: UUID | None


@dataclass(frozen=True, slots=True)
class Order(bulk.Order):
    """What to redrive. The filter's status is one of STATUSES."""

    spread_over: timedelta


@dataclass(frozen=True, slots=True)
class Report:
    """How many were redriven, or would be, and how many more fit; and up to the end how many of what fits cannot be,
    and how many are still to be tried because somebody held them.
    """

    redriven: int
    remaining: Count
    passed_over: int
    end: UUID | None = None
    """Above it there may be some that nobody has tried to redrive; None: there are none."""
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """How many were redriven, cannot be, and were held; which was the last that was tried, and how many are left."""

    count: int = 0
    unsendable: int = 0
    held: int = 0
    last: UUID | None = None
    left: int = 0


class Store(changes.Store, bulk.Store, Protocol):
    async def find_dead(self, tenant: str, filter_: Filter, scan: Scan) -> Slice: ...
    async def redrive_notifications(
        self, tenant: str, turns: Mapping[Dead, timedelta], max_attempts: int, by: By, *, pass_locked: bool
    ) -> Mapping[UUID, Tried]: ...


def order_of(faults: Faults, filter_: Filter, limit: int, spread_over: timedelta, *, dry_run: bool) -> Order:
    """What is asked for, after a look at whether it may be done at all. Of FAILED ones trying again seldom helps."""
    most = bulk.limit_of(faults, filter_, limit, STATUSES)
    if not timedelta() <= spread_over <= MAX_SPREAD:
        faults.add("spread_over", "must be from 0 to 24 hours")
    return Order(replace(filter_, status=filter_.status or STATUSES[0]), most, dry_run, spread_over)


class Redriving:
    def __init__(self, store: Store, *, max_attempts: int, on_due: Callable[[str], None]) -> None:
        """`on_due` is told the channels of what is due again."""
        self._store = store
        self._max_attempts = max_attempts
        self._on_due = on_due

    async def redrive(self, tenant: str, key: UUID | str, by: By) -> Notification:
        """The notification, on its way again; what waits since a redrive stays as it is.

        Raises ResourceNotFound, StatusConflict, NoLongerSendable.
        """
        notification_id = await changes.resolve(self._store, tenant, key)
        tried = await self._try(tenant, {Dead(notification_id, None): timedelta()}, by)
        if (one := tried.get(notification_id)) is None:
            raise ResourceNotFound("notification")
        if one.obstacle == "STATUS":
            if one.status != "PENDING" or not one.redrive_count:
                raise StatusConflict(notification_id, one.status)
        elif one.obstacle is not None:
            raise NoLongerSendable(notification_id, one.obstacle)
        else:
            log.info("job.redriven", notification_id=str(notification_id), actor=by.actor)
        return await changes.get(self._store, tenant, notification_id)

    async def redrive_all(
        self, tenant: str, order: Order, by: By, *, after: UUID | None = None, has_time: Callable[[], bool]
    ) -> Report:
        """`has_time` is asked after each slice, and each part that was tried, whether to go on.

        Raises RequestInvalid.
        """
        filter_ = await locate(self._store, tenant, order.filter_)
        found: list[Dead] = []
        passed_over: list[UUID] = []
        whole = scan_of(filter_)
        scan: Scan | None = replace(whole, after=max(whole.after, _above(after))) if after else whole
        end: UUID | None = None
        while scan and len(found) <= order.limit + BOUND:
            looked = await self._store.find_dead(tenant, filter_, scan)
            found += looked.dead
            passed_over += looked.passed_over
            end = looked.end
            scan = replace(scan, after=_above(end)) if end else None
            if scan and not has_time():
                break
        sent = await self._send_back(tenant, found, order, by, has_time)
        if not order.dry_run:
            log.info(
                "jobs.redriven",
                status=order.filter_.status,
                count=sent.count,
                by_address=filter_.address is not None,
                actor=by.actor,
            )
        stopped = sent.last if sent.left else end
        remaining = Count(min(sent.left, BOUND), at_least=end is not None or sent.left > BOUND or sent.held > 0)
        left_out = sum(stopped is None or id_ <= stopped for id_ in passed_over)
        return Report(sent.count, remaining, left_out + sent.unsendable, stopped, sent.held)

    async def _send_back(
        self, tenant: str, found: Sequence[Dead], order: Order, by: By, has_time: Callable[[], bool]
    ) -> _Sent:
        turns = spread(min(order.limit, len(found)), order.spread_over)
        sent = _Sent(left=len(found))
        # Some may have been taken meanwhile, or expire before their turns: then younger ones take these.
        while found and turns and (sent.last is None or has_time()):
            part, found = dict(zip(found, turns, strict=False)), found[len(turns) :]
            last = max(dead.id for dead in part)
            if order.dry_run:
                return _Sent(len(part), last=last, left=len(found))
            tried = await self._try(tenant, part, by, pass_locked=True)
            done = {id_ for id_, one in tried.items() if one.obstacle is None}
            unsendable = sum(one.obstacle not in (None, "STATUS") for one in tried.values())
            held = sent.held + len(part) - len(tried)
            sent = _Sent(sent.count + len(done), sent.unsendable + unsendable, held, last, len(found))
            turns = [turn for dead, turn in part.items() if dead.id not in done]
        return sent

    async def _try(
        self, tenant: str, turns: Mapping[Dead, timedelta], by: By, *, pass_locked: bool = False
    ) -> Mapping[UUID, Tried]:
        tried = await self._store.redrive_notifications(tenant, turns, self._max_attempts, by, pass_locked=pass_locked)
        for channel in {one.channel for one in tried.values() if one.obstacle is None}:
            self._on_due(channel)
        return tried


def _above(id_: UUID) -> UUID:
    return UUID(int=id_.int + 1)


def spread(count: int, span: timedelta) -> list[timedelta]:
    """When each has its turn, the first at once: all in the span, and equally far apart."""
    return [span * number / count for number in range(count)]
