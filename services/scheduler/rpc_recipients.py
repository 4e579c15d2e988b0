"""The Recipients service: a message in, one call, a message out."""

from collections.abc import Callable

from notifyqueue.v1 import recipients_pb2, recipients_pb2_grpc
from services.scheduler import messages_recipients as messages
from services.scheduler.erasure import Erasure
from services.scheduler.subscribers import Subscribers, check_name
from services.scheduler.suppressions import Suppressions
from shared.clock import tick
from shared.layers import Context, current_call
from shared.paging import NEWEST, Pages
from shared.server import Service

NAME = recipients_pb2.DESCRIPTOR.services_by_name["Recipients"].full_name


class Recipients(recipients_pb2_grpc.RecipientsServicer):
    def __init__(
        self,
        subscribers: Subscribers,
        erasure: Erasure,
        suppressions: Suppressions,
        subscriber_pages: Pages,
        pages: Pages,
        deletions: Pages,
        *,
        on_end: Callable[[], None],
        call_timeout: float,
    ) -> None:
        """`on_end` is called when a call has ended notifications."""
        self._subscribers = subscribers
        self._erasure = erasure
        self._on_end = on_end
        self._call_timeout = call_timeout
        self._suppressions = suppressions
        self._subscriber_pages = subscriber_pages
        self._pages = pages
        self._deletions = deletions

    async def PutSubscriber(
        self, request: recipients_pb2.PutSubscriberRequest, context: Context
    ) -> recipients_pb2.PutSubscriberResponse:
        stored, unchanged = await self._subscribers.put(_tenant(), messages.subscriber_draft(request))
        return recipients_pb2.PutSubscriberResponse(subscriber=messages.subscriber(stored), unchanged=unchanged)

    async def GetSubscriber(
        self, request: recipients_pb2.GetSubscriberRequest, context: Context
    ) -> recipients_pb2.GetSubscriberResponse:
        found = await self._subscribers.get(_tenant(), check_name(request.subscriber))
        return recipients_pb2.GetSubscriberResponse(subscriber=messages.subscriber(found))

    async def ListSubscribers(
        self, request: recipients_pb2.ListSubscribersRequest, context: Context
    ) -> recipients_pb2.ListSubscribersResponse:
        binding, place = messages.place_binding(request), messages.place(request)
        page = self._subscriber_pages.read(_tenant(), binding, request.page_size, request.page_token)
        found = await self._subscribers.list(_tenant(), place, page)
        more = len(found) == page.size
        return recipients_pb2.ListSubscribersResponse(
            subscribers=map(messages.subscriber, found),
            next_page_token=self._subscriber_pages.token(_tenant(), binding, found[-1].id) if more else "",
        )

    async def DeleteSubscriber(
        self, request: recipients_pb2.DeleteSubscriberRequest, context: Context
    ) -> recipients_pb2.DeleteSubscriberResponse:
        name = check_name(request.subscriber)
        half_time = tick() + min(current_call.get().time_remaining(), self._call_timeout) / 2
        try:
            report = await self._erasure.erase(_tenant(), name, _actor(), has_time=lambda: tick() < half_time)
        finally:  # what fails leaves cancelled what it has cancelled
            self._on_end()
        return messages.erasure(report)

    async def PutSuppression(
        self, request: recipients_pb2.PutSuppressionRequest, context: Context
    ) -> recipients_pb2.PutSuppressionResponse:
        stored, unchanged, in_flight = await self._suppressions.put(_tenant(), messages.ban(request), _actor())
        return messages.put(stored, in_flight, unchanged=unchanged)

    async def ListSuppressions(
        self, request: recipients_pb2.ListSuppressionsRequest, context: Context
    ) -> recipients_pb2.ListSuppressionsResponse:
        binding = messages.filter_binding(request)
        filter_ = messages.filter_(request)
        page = self._pages.read(_tenant(), binding, request.page_size, request.page_token)
        rows, end = await self._suppressions.list(_tenant(), filter_, page)
        return recipients_pb2.ListSuppressionsResponse(
            suppressions=map(messages.suppression, rows),
            next_page_token=self._pages.token(_tenant(), binding, end) if end else "",
        )

    async def DeleteSuppression(
        self, request: recipients_pb2.DeleteSuppressionRequest, context: Context
    ) -> recipients_pb2.DeleteSuppressionResponse:
        await self._suppressions.delete(_tenant(), messages.ban(request), _actor())
        return recipients_pb2.DeleteSuppressionResponse()

    async def BulkDeleteSuppressions(
        self, request: recipients_pb2.BulkDeleteSuppressionsRequest, context: Context
    ) -> recipients_pb2.BulkDeleteSuppressionsResponse:
        order, binding = messages.order(request), messages.order_binding(request)
        before = self._deletions.place(_tenant(), binding, request.page_token) or NEWEST
        report = await self._suppressions.delete_all(_tenant(), order, _actor(), before=before)
        token = self._deletions.token(_tenant(), binding, report.end) if report.end else ""
        return messages.report(report, token)


def service(servicer: Recipients) -> Service:
    return Service(NAME, lambda server: recipients_pb2_grpc.add_RecipientsServicer_to_server(servicer, server))


def _tenant() -> str:
    return current_call.get().tenant


def _actor() -> str:
    return current_call.get().actor
