"""Subscribers: people whom a tenant has named, each with an address on a channel or more."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from services.scheduler.addresses import CANONICAL, canonical_email, canonical_token
from services.scheduler.faults import Faults
from services.scheduler.listing import Regions
from services.scheduler.locales import canonical_locale
from services.scheduler.phones import canonical_phone, in_region, is_national
from services.scheduler.suppressions import located
from services.scheduler.validation import subscriber_name
from shared.errors import RequestInvalid, ResourceNotFound, Violation
from shared.paging import Page

# As the IANA writes them, so that no other file of the same folder is one.
ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
MAX_ZONE = 64


@dataclass(frozen=True, slots=True)
class Draft:
    """What a subscriber shall be. A national number still lacks its country."""

    name: str
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    push: str | None = field(repr=False)
    locale: str | None
    time_zone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """As it is stored."""

    id: UUID
    name: str
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    push: str | None = field(repr=False)
    locale: str | None
    time_zone: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """An address on a channel, in any spelling."""

    channel: str
    address: str = field(repr=False)


class Store(Regions, Protocol):
    async def put_subscriber(self, tenant: str, draft: Draft) -> tuple[Subscriber, bool]: ...
    async def read_subscriber(self, tenant: str, name: str) -> Subscriber | None: ...
    async def list_subscribers(self, tenant: str, place: Place | None, page: Page) -> Sequence[Subscriber]: ...


def check(name: str, email: str, phone: str, push: str, locale: str, time_zone: str) -> Draft:
    """Raises RequestInvalid with everything that is wrong."""
    faults = Faults()
    subscriber_name(faults, "subscriber", name)
    draft = Draft(
        name,
        faults.canonical("email", email, canonical_email) if email else None,
        faults.canonical("phone", phone, canonical_phone) if phone else None,
        faults.canonical("push", push, canonical_token) if push else None,
        faults.canonical("locale", locale, canonical_locale) if locale else None,
        faults.canonical("time_zone", time_zone, known_zone) if time_zone else None,
    )
    faults.raise_any()
    return draft


def known_zone(text: str) -> str:
    """Raises ValueError; its message says what is wrong and quotes nothing."""
    try:
        if len(text) > MAX_ZONE or not ZONE.fullmatch(text):
            raise ZoneInfoNotFoundError
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone of the IANA, as Europe/Vienna") from None
    return text


def check_name(name: str) -> str:
    """Raises RequestInvalid."""
    faults = Faults()
    subscriber_name(faults, "subscriber", name)
    faults.raise_any()
    return name


def check_place(channel: str | None, address: str) -> Place | None:
    """Raises RequestInvalid."""
    faults = Faults()
    if channel and not address:
        faults.add("address", "is required where a channel is given")
    elif address and not channel:
        faults.add("channel", "is required where an address is given")
    elif channel:
        address = faults.canonical("address", address, CANONICAL[channel])
    faults.raise_any()
    return Place(channel, address) if channel else None


class Subscribers:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, tenant: str, draft: Draft) -> tuple[Subscriber, bool]:
        """As it is stored, and whether it was so before. Raises RequestInvalid."""
        if draft.phone and is_national("SMS", draft.phone):
            try:
                draft = replace(draft, phone=in_region(draft.phone, await self._store.read_region(tenant)))
            except ValueError as error:
                raise RequestInvalid([Violation("phone", str(error))]) from None
        return await self._store.put_subscriber(tenant, draft)

    async def get(self, tenant: str, name: str) -> Subscriber:
        """Raises ResourceNotFound."""
        if found := await self._store.read_subscriber(tenant, name):
            return found
        raise ResourceNotFound("subscriber")

    async def list(self, tenant: str, place: Place | None, page: Page) -> Sequence[Subscriber]:
        """The newest first. Raises RequestInvalid."""
        if place:
            place = replace(place, address=await located(self._store, tenant, place.channel, place.address))
        return await self._store.list_subscribers(tenant, place, page)
