"""The day itself: every act is asked for through the public API, as a shop's programs would."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from notifyqueue import Channel, Client, NotificationFilter, NotifyQueueError, SuppressionSource
from notifyqueue.v1.notification_pb2 import Notification
from notifyqueue.v1.scheduler_pb2 import ScheduleNotificationRequest
from sandbox.demo.story import ACTS, LOCALES, REFUSALS, TEMPLATE, VARIANTS, Act, Refusal, Who

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
    """`client` is the shop's, `small` that of another one, whose tenant has limits."""

    def __init__(self, client: Client, small: Client, run: str) -> None:
        self.played = [Played(act) for act in ACTS]
        self.refused_as_told: dict[str, bool] = {}
        self._client = client
        self._small = small
        self._run = run
        self._calls = asyncio.Semaphore(AT_ONCE)

    async def play(self) -> None:
        """Returns when everything is accepted, and changed where that belongs to it."""
        await self._client.put_template(TEMPLATE, VARIANTS, default_locale=LOCALES[0])
        theirs = [played for played in self.played if not played.act.small]
        await _together([*(self._play(played) for played in theirs), self._refuse(""), self._play_small()])

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

    async def _play_small(self) -> None:
        """One act after the other, and what is to be refused after each."""
        for played in self.played:
            if played.act.small:
                await self._play(played)
                await self._refuse(played.act.name)

    def _of(self, act: Act) -> Client:
        return self._small if act.small else self._client

    async def _play(self, played: Played) -> None:
        requests = played.act.requests(self._run)
        played.addresses = [request.address for request in requests]
        if played.act.in_batches:
            async for outcome in self._of(played.act).schedule_all(requests):
                if outcome.error:
                    raise outcome.error
                played.ids.add(outcome.notification_id)
        else:
            twice = [*requests, *requests] if played.act.twice else requests
            await _together(self._schedule(played, request) for request in twice)
        await self._change(played, requests)

    async def _schedule(self, played: Played, request: ScheduleNotificationRequest) -> None:
        async with self._calls:
            answer = await self._of(played.act).schedule(request)
        played.ids.add(answer.notification.notification_id)
        played.replays += answer.replayed

    async def _change(self, played: Played, requests: Sequence[ScheduleNotificationRequest]) -> None:
        client = self._of(played.act)
        match played.act.afterwards:
            case "cancel":
                for request in requests:
                    await client.cancel(idempotency_key=request.idempotency_key, reason="changed their mind")
            case "cancel all":
                everything = NotificationFilter(reference=played.act.reference(self._run))
                await client.bulk_cancel(everything, reason="a mistake in the text")
            case "reschedule":
                await self._bring_on(client, played)
            case "opt out":
                await _together(_opt_out(client, request.address) for request in requests)
                await self._bring_on(client, played)

    async def _bring_on(self, client: Client, played: Played) -> None:
        for id_ in played.ids:
            await client.reschedule(notification_id=id_, due=timedelta(seconds=1), reason="came early")

    async def _refuse(self, after: str) -> None:
        for refusal in REFUSALS:
            if refusal.after == after:
                client = self._small if after else self._client
                self.refused_as_told[refusal.title] = await self._is_refused(client, refusal)

    async def _is_refused(self, client: Client, refusal: Refusal) -> bool:
        request = refusal.make(Who(f"{self._run}-refused", 0))
        request.idempotency_key = f"{self._run}-refused-{refusal.reason}"
        try:
            await client.schedule(request)
        except NotifyQueueError as error:
            fields = [violation.field for violation in error.violations]
            said_when = error.retry_after is not None and error.retry_after > timedelta()
            named = fields == ([refusal.field] if refusal.field else [])
            return named and (error.reason, said_when) == (refusal.reason, refusal.later)
        return False

    async def _look(self, played: Played) -> None:
        found = self._of(played.act).list(NotificationFilter(reference=played.act.reference(self._run)), page_size=500)
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


async def _opt_out(client: Client, address: str) -> None:
    source = SuppressionSource.SUPPRESSION_SOURCE_OPTED_OUT
    await client.put_suppression(Channel.CHANNEL_EMAIL, address, source)


def _status(notification: Notification) -> str:
    return Notification.Status.Name(notification.status).removeprefix("STATUS_")
