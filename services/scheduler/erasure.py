"""Erasing a subscriber: what was said to him, where it went, and who he is. That he opted out goes on to hold.

It works in parts, and he himself goes last, with the last of them, while he is held: so a call that is broken off
leaves him there, to be erased by the next one, and nobody accepts anything for him behind its back.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import structlog

from services.scheduler.changes import By
from services.scheduler.destination import Pseudonyms
from shared.errors import ResourceNotFound

log = structlog.get_logger()

PART = 500  # notifications in one transaction
LAST_PART = 100  # while he is held
WHY = "its subscriber was deleted"
LOWEST = UUID(int=0)

Place = tuple[str, str]  # channel, address


@dataclass(frozen=True, slots=True)
class Erased:
    """A notification, as it stood."""

    id: UUID
    status: str
    place: Place = field(repr=False)


@dataclass(frozen=True, slots=True)
class Person:
    """Whom we hold."""

    id: UUID
    places: Sequence[Place] = field(repr=False)


@dataclass(slots=True)
class Report:
    erased: int = 0
    cancelled: int = 0
    """Of these, those that no worker had taken."""
    in_flight: int = 0
    """Of these, those that a worker has in hand."""
    more: bool = False
    """He is still there."""

    def add(self, part: Iterable[Erased]) -> None:
        for one in part:
            self.erased += 1
            self.cancelled += one.status == "PENDING"
            self.in_flight += one.status == "PROCESSING"


class Statements(Protocol):
    async def hold_subscriber(self, tenant: str, name: str) -> Person | None: ...
    async def erase_notifications(
        self, tenant: str, name: str, above: UUID, limit: int, by: By
    ) -> Sequence[Erased]: ...
    async def set_pseudonyms(self, tenant: str, places: Sequence[tuple[str, str, str]]) -> None: ...
    async def erase_suppressions(self, tenant: str, places: Sequence[tuple[str, str, str]]) -> None: ...
    async def delete_subscriber(self, person: UUID) -> None: ...


class Store(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[Statements]: ...


class Erasure:
    def __init__(self, store: Store, pseudonyms: Pseudonyms) -> None:
        self._store = store
        self._pseudonyms = pseudonyms

    async def erase(self, tenant: str, name: str, actor: str, *, has_time: Callable[[], bool]) -> Report:
        """`has_time` is asked after each part whether there shall be another. Raises ResourceNotFound."""
        report, by = Report(), By(actor, WHY)
        above: UUID | None = LOWEST
        while True:
            if above is not None:
                above = await self._take_part(report, tenant, name, above, by)
            if above is None and await self._take_last(report, tenant, name, by):
                log.info("subscriber.deleted", erased=report.erased, actor=actor)
                return report
            if not has_time():
                report.more = True
                return report

    async def _take_part(self, report: Report, tenant: str, name: str, above: UUID, by: By) -> UUID | None:
        """Where the next one begins; None: these were all, but for what came meanwhile."""
        async with self._store.transaction() as store:
            part = await store.erase_notifications(tenant, name, above, PART, by)
            await self._forget(store, tenant, {one.place for one in part})
        report.add(part)
        return part[-1].id if len(part) == PART else None

    async def _take_last(self, report: Report, tenant: str, name: str, by: By) -> bool:
        """Whether he is gone: not, where more came meanwhile than is written while he is held."""
        async with self._store.transaction() as store:
            person = await store.hold_subscriber(tenant, name)
            if person is None:
                raise ResourceNotFound("subscriber")
            part = await store.erase_notifications(tenant, name, LOWEST, LAST_PART, by)
            whole = len(part) < LAST_PART
            await self._forget(store, tenant, {one.place for one in part}.union(person.places if whole else ()))
            if whole:
                await store.delete_subscriber(person.id)
        report.add(part)
        return whole

    async def _forget(self, store: Statements, tenant: str, places: Iterable[Place]) -> None:
        """What suppresses them holds by what stands for them from now on: also where he has moved since."""
        told = [(*place, self._pseudonyms(tenant, *place)) for place in sorted(places)]
        if told:
            await store.set_pseudonyms(tenant, told)
            await store.erase_suppressions(tenant, told)
