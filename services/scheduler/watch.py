"""Watching notifications: one query a tick, however many watch, and none while nobody does.

The query carries the revisions that are known and answers what has another by now. So nothing depends on times or
on the order of commits: what was committed late has its revision when it is looked at next.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, Self
from uuid import UUID

from services.scheduler.notification import Notification
from shared.errors import ApiError, ResourceNotFound, ServerDraining
from shared.lifecycle import TERMINAL
from shared.loop import Loop

TICK = 0.5  # seconds


class Store(Protocol):
    async def read_changed(self, known: Sequence[tuple[UUID, int]]) -> Mapping[UUID, Notification | None]: ...


class _Watcher:
    """Has one slot for news: whoever reads slowly misses what was in between, and costs no more memory than others.

    What then looks as it did is no news, as where one was claimed and put to wait between two looks.
    """

    def __init__(self, current: Notification) -> None:
        self._seen = current
        self._revision = current.revision
        self._news: Notification | ApiError | None = None
        self._told = asyncio.Event()

    def tell(self, news: Notification | ApiError) -> None:
        if isinstance(self._news, Notification) and self._news.status in TERMINAL:
            return  # how it ended is told, whatever comes after
        if isinstance(news, Notification):
            if news.revision <= self._revision:
                return
            self._revision = news.revision
        self._news = news
        self._told.set()

    async def next(self) -> Notification:
        while True:
            await self._told.wait()
            if isinstance(self._news, ApiError):
                raise self._news
            self._told.clear()
            if self._news and self._news != replace(self._seen, revision=self._news.revision):
                self._seen = self._news
                return self._seen


@dataclass(slots=True)
class _Watched:
    """A notification that somebody watches: the lowest revision that one of them knows."""

    revision: int
    watchers: set[_Watcher] = field(default_factory=set)

    def tell(self, now: Notification | None) -> None:
        if now:
            self.revision = now.revision
        for watcher in self.watchers:
            watcher.tell(now or ResourceNotFound("notification"))


class Hub:
    """Looks for all who watch. Leaving ends their streams, with ServerDraining: others will serve them."""

    def __init__(self, store: Store, *, tick: float = TICK) -> None:
        self._store = store
        self._tick = tick
        self._watched: dict[UUID, _Watched] = {}
        self._leaving = False
        self._loop = Loop("watch", self.look)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        for watched in self._watched.values():
            for watcher in watched.watchers:
                watcher.tell(ServerDraining())
        await self._loop.__aexit__()

    @property
    def watchers(self) -> int:
        return sum(len(watched.watchers) for watched in self._watched.values())

    async def watch(self, current: Notification) -> AsyncGenerator[Notification, None]:
        """The notification as it was just read, and after each change, until it has ended.

        Raises ResourceNotFound when it was removed, and ServerDraining.
        """
        with self._joined(current) as watcher:
            yield current
            while current.status not in TERMINAL:
                current = await watcher.next()
                yield current

    @contextmanager
    def _joined(self, current: Notification) -> Iterator[_Watcher]:
        if self._leaving:
            raise ServerDraining
        if not self._watched:
            self._loop.wake()
        watcher = _Watcher(current)
        watched = self._watched.setdefault(current.id, _Watched(current.revision))
        # What was read before the others' last news is old news by now, and is asked for again.
        watched.revision = min(watched.revision, current.revision)
        watched.watchers.add(watcher)
        try:
            yield watcher
        finally:
            watched.watchers.discard(watcher)
            if not watched.watchers:
                del self._watched[current.id]

    async def look(self) -> float | None:
        """One tick: answers in how many seconds the next is due; None: when somebody comes."""
        if not self._watched:
            return None
        known = sorted((id_, watched.revision) for id_, watched in self._watched.items())
        for id_, now in (await self._store.read_changed(known)).items():
            if watched := self._watched.get(id_):
                watched.tell(now)
        return self._tick
