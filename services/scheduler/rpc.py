"""The Scheduler service: a message in, one call, a message out."""

from collections.abc import Callable

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.scheduler import accept, changes, listing, messages, validation
from services.scheduler.store import Store
from shared.batching import GroupCommit
from shared.errors import ApiError
from shared.layers import Context, current_call
from shared.paging import Pages
from shared.server import Service


class Scheduler(scheduler_pb2_grpc.SchedulerServicer):
    def __init__(
        self,
        store: Store,
        accepting: GroupCommit[accept.Candidate, accept.Answer],
        pages: Pages,
        *,
        on_end: Callable[[], None],
    ) -> None:
        """`on_end` is called when a call has ended a notification: that is an event."""
        self._store = store
        self._accepting = accepting
        self._pages = pages
        self._on_end = on_end

    async def ScheduleNotification(
        self, request: scheduler_pb2.ScheduleNotificationRequest, context: Context
    ) -> scheduler_pb2.ScheduleNotificationResponse:
        valid = validation.check(messages.draft(_tenant(), request))
        answer = await self._accepting.submit(accept.candidate(valid))
        if isinstance(answer, ApiError):
            raise answer
        return scheduler_pb2.ScheduleNotificationResponse(
            notification=messages.notification(answer.notification), replayed=answer.replayed
        )

    async def GetNotification(
        self, request: scheduler_pb2.GetNotificationRequest, context: Context
    ) -> scheduler_pb2.GetNotificationResponse:
        key = validation.key_of(*messages.chosen(request, "key"))
        found = await changes.get(self._store, _tenant(), key)
        timeline = await self._store.read_history(found.id) if request.include_timeline else None
        return scheduler_pb2.GetNotificationResponse(notification=messages.notification(found, timeline))

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
        note = validation.short("reason", request.reason)
        found = await changes.cancel(self._store, _tenant(), key, actor="", note=note)
        self._on_end()
        return scheduler_pb2.CancelNotificationResponse(notification=messages.notification(found))

    async def GetQueueStats(
        self, request: scheduler_pb2.GetQueueStatsRequest, context: Context
    ) -> scheduler_pb2.GetQueueStatsResponse:
        lanes = await self._store.read_lane_stats(_tenant())
        return messages.stats(lanes, await self._store.read_webhook_stats(_tenant()))


def service(servicer: Scheduler) -> Service:
    name = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].full_name
    return Service(name, lambda server: scheduler_pb2_grpc.add_SchedulerServicer_to_server(servicer, server))


def _tenant() -> str:
    return current_call.get().tenant
