"""Suppressions: whom nothing is sent to, by whatever said so, and what was under way when it was said."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID

import structlog

from services.scheduler.addresses import CANONICAL
from services.scheduler.bulk import DEFAULT_LIMIT, MAX_LIMIT
from services.scheduler.destination import Pseudonyms
from services.scheduler.faults import Faults
from services.scheduler.listing import OLDEST, SLACK, Regions, Scan, first_id
from services.scheduler.phones import in_region, is_national
from services.scheduler.statistics import Count
from services.scheduler.validation import subscriber_name
from shared.clock import tick
from shared.errors import DatabaseUnavailable, RequestInvalid, ResourceNotFound, Violation
from shared.paging import NEWEST, Page

log = structlog.get_logger()

MAX_CATEGORY = 64
MAX_ROUNDS = 3
PATIENCE = 1.0  # seconds for those who were taking notifications when it was put
PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class Ban:
    """What a suppression is told by: of a tenant there is one of each."""

    channel: str
    """Empty: on all of a subscriber's."""
    address: str | None = field(repr=False)
    """In canonical form, but for a national number's country, until `located`; None: of a subscriber."""
    category: str
    source: str
    subscriber: str | None = None
    pseudonym: str | None = None
    """What stands for the address, once it is `located`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """As it is stored."""

    id: UUID
    channel: str
    address: str | None = field(repr=False)
    subscriber: str | None
    erased: bool
    """Of the address only its pseudonym was kept, which `address` is."""
    category: str
    source: str
    code: str | None
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Filter:
    """What must match, where it is set."""

    channel: str | None = None
    address: str | None = field(default=None, repr=False)
    category: str | None = None
    source: str | None = None
    subscriber: str | None = None
    pseudonym: str | None = None
    """What stands for the address, once it is `located`."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to take away: at most `limit` of what a source has brought since a time."""

    source: str
    since: datetime
    limit: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Report:
    """How many were taken away, or would be, and how many more there are."""

    deleted: int
    remaining: Count
    end: UUID | None
    """Below it there are more; None: there are none."""


class Store(Regions, Protocol):
    async def put_suppression(self, tenant: str, ban: Ban, actor: str) -> tuple[Suppression, bool] | None: ...
    async def find_writers(self) -> set[str]: ...
    async def count_in_flight(self, tenant: str, ban: Ban) -> int: ...
    async def list_suppressions(
        self, tenant: str, filter_: Filter, page: Page
    ) -> tuple[Sequence[Suppression], UUID | None]: ...
    async def delete_suppression(self, tenant: str, ban: Ban) -> UUID | None: ...
    async def delete_suppressions(self, tenant: str, order: Order, scan: Scan) -> Report: ...


def check(channel: str | None, recipient: str | None, name: str, category: str, source: str | None) -> Ban:
    """`recipient` names the alternative that was chosen, and `name` is it. Raises RequestInvalid with everything that
    is wrong.
    """
    faults = Faults()
    if recipient == "subscriber":
        subscriber_name(faults, "subscriber", name)
    else:
        if channel is None:
            faults.add("channel", "is required")
        if not name:
            faults.add("address", "or subscriber is required")
        elif channel:
            name = faults.canonical("address", name, CANONICAL[channel])
    _check_category(faults, category)
    if source is None:
        faults.add("source", "is required")
    faults.raise_any()
    if recipient == "subscriber":
        return Ban(channel or "", None, category, source or "", subscriber=name)
    return Ban(channel or "", name, category, source or "")


def check_filter(channel: str | None, address: str, category: str, source: str | None, subscriber: str = "") -> Filter:
    """Raises RequestInvalid."""
    faults = Faults()
    subscriber_name(faults, "subscriber", subscriber, required=False)
    if address and subscriber:
        faults.add("address", "must not be given with a subscriber")
    if address and channel:
        address = faults.canonical("address", address, CANONICAL[channel])
    elif address:
        faults.add("channel", "is required where an address is given")
    _check_category(faults, category)
    faults.raise_any()
    return Filter(channel, address or None, category or None, source, subscriber or None)


def check_order(source: str | None, since: datetime | None, limit: int, *, dry_run: bool) -> Order:
    """Raises RequestInvalid."""
    faults = Faults()
    if source is None:
        faults.add("source", "is required")
    if since is None:
        faults.add("since", "is required")
    if not 0 <= limit <= MAX_LIMIT:
        faults.add("limit", f"must be from 1 to {MAX_LIMIT}, or 0 for {DEFAULT_LIMIT}")
    if faults.found or source is None or since is None:
        raise RequestInvalid(faults.found)
    return Order(source, since, limit or DEFAULT_LIMIT, dry_run)


def _check_category(faults: Faults, category: str) -> None:
    faults.length("category", category, MAX_CATEGORY)
    faults.line("category", category)


async def located(store: Regions, tenant: str, channel: str, address: str) -> str:
    """The address, a national number with its country. Raises RequestInvalid."""
    if not is_national(channel, address):
        return address
    try:
        return in_region(address, await store.read_region(tenant))
    except ValueError as error:
        raise RequestInvalid([Violation("address", str(error))]) from None


class Suppressions:
    def __init__(self, store: Store, pseudonyms: Pseudonyms) -> None:
        self._store = store
        self._pseudonyms = pseudonyms

    async def put(self, tenant: str, ban: Ban, actor: str) -> tuple[Suppression, bool, Count]:
        """As it is stored, whether it was before, and how much of what it forbids is under way."""
        ban = await self._located(tenant, ban)
        for _ in range(MAX_ROUNDS):
            if put := await self._store.put_suppression(tenant, ban, actor):
                stored, unchanged = put
                return stored, unchanged, await self._in_flight(tenant, ban)
        raise DatabaseUnavailable  # somebody puts it and takes it away as fast as we look

    async def _in_flight(self, tenant: str, ban: Ban) -> Count:
        """A claim that had begun when it was committed does not know of it, and is to be seen once it has committed."""
        deadline = tick() + PATIENCE
        writers = await self._store.find_writers()
        while writers and tick() < deadline:
            await asyncio.sleep(PAUSE)
            writers &= await self._store.find_writers()
        return Count(await self._store.count_in_flight(tenant, ban), at_least=bool(writers))

    async def list(self, tenant: str, filter_: Filter, page: Page) -> tuple[Sequence[Suppression], UUID | None]:
        """A page, and the id below which the next one begins. A short or empty page need not be the last."""
        if filter_.address and filter_.channel:
            address = await located(self._store, tenant, filter_.channel, filter_.address)
            pseudonym = self._pseudonyms(tenant, filter_.channel, address)
            filter_ = replace(filter_, address=address, pseudonym=pseudonym)
        rows, end = await self._store.list_suppressions(tenant, filter_, page)
        return rows, rows[-1].id if len(rows) == page.size else end

    async def delete(self, tenant: str, ban: Ban, actor: str) -> None:
        """Raises ResourceNotFound."""
        found = await self._store.delete_suppression(tenant, await self._located(tenant, ban))
        if found is None:
            raise ResourceNotFound("suppression")
        log.info("suppression.deleted", suppression_id=str(found), actor=actor)

    async def delete_all(self, tenant: str, order: Order, actor: str, *, before: UUID = NEWEST) -> Report:
        scan = Scan(before, max(OLDEST, first_id(order.since, -SLACK)))
        report = await self._store.delete_suppressions(tenant, order, scan)
        if report.deleted and not order.dry_run:
            log.info("suppression.deleted", source=order.source, count=report.deleted, actor=actor)
        return report

    async def _located(self, tenant: str, ban: Ban) -> Ban:
        if ban.address is None:
            return ban
        address = await located(self._store, tenant, ban.channel, ban.address)
        return replace(ban, address=address, pseudonym=self._pseudonyms(tenant, ban.channel, address))
