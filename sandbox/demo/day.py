"""The day itself: every act is asked for through the public API, as a shop's programs would."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from notifyqueue import Client, NotificationFilter, NotifyQueueError
from notifyqueue.v1.notification_pb2 import Notification
from notifyqueue.v1.scheduler_pb2 import ScheduleNotificationRequest
from sandbox.demo.story import ACTS, REFUSED, Act

AT_ONCE = 16
OPEN = frozenset({"PENDING", "PROCESSING"})


@dataclass(slots=True)
class Played:
    """An act, and what the API has said of it so far."""

    act: Act
    ids: set[str] = field(default_factory=set)
    addresses: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    replays: int = 0

    @property
    def ended(self) -> int:
        return sum(count for status, count in self.statuses.items() if status not in OPEN)

    @property
    def as_told(self) -> bool:
        """Whether all of it ended as it must."""
        return self.statuses == {self.act.ends: self.act.count} and self.replays == self.act.count * self.act.twice


class Day:
    def __init__(self, client: Client, run: str) -> None:
        self.played = [Played(act) for act in ACTS]
        self.refused_as_told: dict[str, bool] = {}
        self._client = client
        self._run = run
        self._calls = asyncio.Semaphore(AT_ONCE)

    async def play(self) -> None:
        """Returns when everything is accepted, and changed where that belongs to it."""
        await _together([*(self._play(played) for played in self.played), self._refuse()])

    async def look(self) -> None:
        """Asks what has become of each."""
        for played in self.played:
            if played.ended < len(played.ids):
                await self._look(played)

    @property
    def over(self) -> bool:
        return all(played.ended >= len(played.ids) for played in self.played)

    @property
    def outage_over(self) -> bool:
        """Whether everything that must end while the push provider is down has ended."""
        return all(played.ended >= played.act.count for played in self.played if played.act.in_outage)

    @property
    def accepted(self) -> set[str]:
        return {id_ for played in self.played for id_ in played.ids}

    async def _play(self, played: Played) -> None:
        requests = played.act.requests(self._run)
        played.addresses = [request.address for request in requests]
        if played.act.in_batches:
            async for outcome in self._client.schedule_all(requests):
                if outcome.error:
                    raise outcome.error
                played.ids.add(outcome.notification_id)
        else:
            twice = [*requests, *requests] if played.act.twice else requests
            await _together(self._schedule(played, request) for request in twice)
        await self._change(played, requests)

    async def _schedule(self, played: Played, request: ScheduleNotificationRequest) -> None:
        async with self._calls:
            answer = await self._client.schedule(request)
        played.ids.add(answer.notification.notification_id)
        played.replays += answer.replayed

    async def _change(self, played: Played, requests: Sequence[ScheduleNotificationRequest]) -> None:
        match played.act.afterwards:
            case "cancel":
                for request in requests:
                    await self._client.cancel(idempotency_key=request.idempotency_key, reason="changed their mind")
            case "cancel all":
                everything = NotificationFilter(reference=played.act.reference(self._run))
                await self._client.bulk_cancel(everything, reason="a mistake in the text")
            case "reschedule":
                for id_ in played.ids:
                    await self._client.reschedule(notification_id=id_, due=timedelta(seconds=1), reason="came early")

    async def _refuse(self) -> None:
        for name, request in REFUSED.items():
            try:
                await self._client.schedule(request)
            except NotifyQueueError as error:
                fields = [violation.field for violation in error.violations]
                self.refused_as_told[name] = fields == [name]
            else:
                self.refused_as_told[name] = False

    async def _look(self, played: Played) -> None:
        found = self._client.list(NotificationFilter(reference=played.act.reference(self._run)), page_size=500)
        seen = [notification async for notification in found]
        played.statuses = Counter(_status(notification) for notification in seen)
        played.attempts = sum(notification.attempt_count for notification in seen)


async def _together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them at once. Raises the first error, and then none goes on."""
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _status(notification: Notification) -> str:
    return Notification.Status.Name(notification.status).removeprefix("STATUS_")
