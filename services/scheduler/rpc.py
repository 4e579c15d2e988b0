"""The Scheduler service: a message in, one call, a message out."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.scheduler import (
    batch,
    bulk,
    changes,
    judging,
    lanes,
    listing,
    messages,
    messages_stats,
    redrives,
    spans,
    validation,
)
from services.scheduler.store import Store
from services.scheduler.watch import Hub
from shared import shape, wire
from shared.batching import GroupCommit
from shared.clock import tick
from shared.errors import ApiError
from shared.layers import Context, current_call, told
from shared.paging import NEWEST, Pages
from shared.server import Service

NAME = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].full_name

# Methods whose requests may be larger than others.
LARGE = frozenset({f"{NAME}/BatchScheduleNotifications"})
WATCH = f"{NAME}/WatchNotification"


class Scheduler(scheduler_pb2_grpc.SchedulerServicer):
    def __init__(
        self,
        store: Store,
        accepting: GroupCommit[judging.Candidate, judging.Answer],
        rescheduling: changes.Rescheduling,
        redriving: redrives.Redriving,
        pages: Pages,
        cancellations: Pages,
        redrive_pages: Pages,
        watching: Hub,
        *,
        on_end: Callable[[], None],
        on_lane: Callable[[], None],
        call_timeout: float,
    ) -> None:
        """`on_end` is called when a call has ended notifications, `on_lane` when it has changed a lane."""
        self._store = store
        self._accepting = accepting
        self._rescheduling = rescheduling
        self._redriving = redriving
        self._pages = pages
        self._cancellations = cancellations
        self._redrive_pages = redrive_pages
        self._watching = watching
        self._on_end = on_end
        self._on_lane = on_lane
        self._call_timeout = call_timeout

    async def ScheduleNotification(
        self, request: scheduler_pb2.ScheduleNotificationRequest, context: Context
    ) -> scheduler_pb2.ScheduleNotificationResponse:
        answer = await self._submit(_candidate(request))
        return scheduler_pb2.ScheduleNotificationResponse(
            notification=messages.notification(answer.notification), replayed=answer.replayed
        )

    async def BatchScheduleNotifications(
        self, request: scheduler_pb2.BatchScheduleNotificationsRequest, context: Context
    ) -> scheduler_pb2.BatchScheduleNotificationsResponse:
        batch.check_count(len(request.requests))
        repetitions = batch.Repetitions(self._submit)

        async def accept_item(item: scheduler_pb2.ScheduleNotificationRequest) -> judging.Accepted:
            wire.check_size(item.ByteSize())  # of a call of its own, a layer does both
            shape.check(item)
            return await repetitions.accept(_candidate(item))

        answers = await batch.answer_all(accept_item, request.requests, partial(told, current_call.get()))
        return scheduler_pb2.BatchScheduleNotificationsResponse(results=map(messages.batch_result, answers))

    async def _submit(self, candidate: judging.Candidate) -> judging.Accepted:
        with spans.send(candidate.request.channel) as span:
            if span.reference:
                candidate = replace(candidate, trace=span.reference)
            answer = await self._accepting.submit(candidate)
            if isinstance(answer, ApiError):
                span.fail(answer.reason)
            else:
                spans.sent(span, answer.notification.id, replayed=answer.replayed)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def GetNotification(
        self, request: scheduler_pb2.GetNotificationRequest, context: Context
    ) -> scheduler_pb2.GetNotificationResponse:
        key = validation.key_of(*messages.chosen(request, "key"))
        found = await changes.get(self._store, _tenant(), key)
        timeline = await self._store.read_history(found.id) if request.include_timeline else None
        return scheduler_pb2.GetNotificationResponse(notification=messages.notification(found, timeline))

    async def WatchNotification(
        self, request: scheduler_pb2.WatchNotificationRequest, context: Context
    ) -> AsyncIterator[scheduler_pb2.WatchNotificationResponse]:
        key = validation.key_of(*messages.chosen(request, "key"))
        async with aclosing(self._watching.watch(await changes.get(self._store, _tenant(), key))) as states:
            async for found in states:
                yield scheduler_pb2.WatchNotificationResponse(notification=messages.notification(found))

    async def ListNotifications(
        self, request: scheduler_pb2.ListNotificationsRequest, context: Context
    ) -> scheduler_pb2.ListNotificationsResponse:
        binding = messages.filter_binding(request.filter)
        filter_ = messages.filter_(request.filter)
        page = self._pages.read(_tenant(), binding, request.page_size, request.page_token)
        rows, end = await listing.list_page(self._store, _tenant(), filter_, page)
        shown = messages.notifications(rows)
        if len(shown) < len(rows):
            end = rows[len(shown) - 1].id
        return scheduler_pb2.ListNotificationsResponse(
            notifications=shown,
            next_page_token=self._pages.token(_tenant(), binding, end) if end else "",
        )

    async def CancelNotification(
        self, request: scheduler_pb2.CancelNotificationRequest, context: Context
    ) -> scheduler_pb2.CancelNotificationResponse:
        key = validation.key_of(*messages.chosen(request, "key"))
        by = changes.By(_actor(), validation.short("reason", request.reason))
        try:
            found = await changes.cancel(self._store, _tenant(), key, by)
        finally:  # also what fails may have ended it, and somebody waits to report that
            self._on_end()
        return scheduler_pb2.CancelNotificationResponse(notification=messages.notification(found))

    async def RescheduleNotification(
        self, request: scheduler_pb2.RescheduleNotificationRequest, context: Context
    ) -> scheduler_pb2.RescheduleNotificationResponse:
        key = validation.key_of(*messages.chosen(request, "key"))
        wish, reason = messages.wish(request)
        moved = await self._rescheduling.reschedule(_tenant(), key, wish, changes.By(_actor(), reason))
        return scheduler_pb2.RescheduleNotificationResponse(notification=messages.notification(moved))

    async def BulkCancelNotifications(
        self, request: scheduler_pb2.BulkCancelNotificationsRequest, context: Context
    ) -> scheduler_pb2.BulkCancelNotificationsResponse:
        order, reason = messages.bulk_order(request)
        by, half_time = changes.By(_actor(), reason), self._half_time()
        binding = messages.bulk_binding(request)
        before = self._cancellations.place(_tenant(), binding, request.page_token) or NEWEST
        try:
            report = await bulk.cancel(
                self._store, _tenant(), order, by, before=before, has_time=lambda: tick() < half_time
            )
        finally:  # what fails leaves cancelled what it has cancelled
            if not order.dry_run:
                self._on_end()
        token = self._cancellations.token(_tenant(), binding, report.end) if report.end else ""
        return messages.bulk_report(report, token)

    async def RedriveNotification(
        self, request: scheduler_pb2.RedriveNotificationRequest, context: Context
    ) -> scheduler_pb2.RedriveNotificationResponse:
        key = validation.key_of(*messages.chosen(request, "key"))
        by = changes.By(_actor(), validation.short("reason", request.reason))
        redriven = await self._redriving.redrive(_tenant(), key, by)
        return scheduler_pb2.RedriveNotificationResponse(notification=messages.notification(redriven))

    async def BulkRedriveNotifications(
        self, request: scheduler_pb2.BulkRedriveNotificationsRequest, context: Context
    ) -> scheduler_pb2.BulkRedriveNotificationsResponse:
        order, reason = messages.redrive_order(request)
        by, half_time = changes.By(_actor(), reason), self._half_time()
        binding = messages.bulk_binding(request)
        after = self._redrive_pages.place(_tenant(), binding, request.page_token)
        report = await self._redriving.redrive_all(
            _tenant(), order, by, after=after, has_time=lambda: tick() < half_time
        )
        token = self._redrive_pages.token(_tenant(), binding, report.end) if report.end else ""
        return messages.redrive_report(report, token)

    async def GetQueueStats(
        self, request: scheduler_pb2.GetQueueStatsRequest, context: Context
    ) -> scheduler_pb2.GetQueueStatsResponse:
        caller = current_call.get().caller
        return messages_stats.stats(
            await self._store.read_lane_stats(caller.tenant),
            await self._store.read_lanes(),
            await self._store.read_totals(caller.tenant),
            await self._store.read_webhook_stats(caller.tenant),
            await self._store.read_workers() if caller.sees_platform else None,
        )

    async def PauseLane(
        self, request: scheduler_pb2.PauseLaneRequest, context: Context
    ) -> scheduler_pb2.PauseLaneResponse:
        channel, reason = validation.lane(messages.channel(request.channel), request.reason, reason_required=True)
        paused = await lanes.pause(self._store, channel, actor=_actor(), reason=reason)
        self._on_lane()
        return scheduler_pb2.PauseLaneResponse(lane=messages_stats.lane(paused))

    async def ResumeLane(
        self, request: scheduler_pb2.ResumeLaneRequest, context: Context
    ) -> scheduler_pb2.ResumeLaneResponse:
        channel, reason = validation.lane(messages.channel(request.channel), request.reason)
        resumed = await lanes.resume(self._store, channel, actor=_actor(), reason=reason)
        self._on_lane()
        return scheduler_pb2.ResumeLaneResponse(lane=messages_stats.lane(resumed))

    def _half_time(self) -> float:
        """When what can stop early stops, so that its answer arrives."""
        return tick() + min(current_call.get().time_remaining(), self._call_timeout) / 2


def service(servicer: Scheduler) -> Service:
    return Service(NAME, lambda server: scheduler_pb2_grpc.add_SchedulerServicer_to_server(servicer, server))


def _candidate(request: scheduler_pb2.ScheduleNotificationRequest) -> judging.Candidate:
    """Raises RequestInvalid."""
    return judging.candidate(validation.check(messages.draft(_tenant(), request)))


def _tenant() -> str:
    return current_call.get().tenant


def _actor() -> str:
    return current_call.get().actor
