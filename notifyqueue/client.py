"""The Scheduler's calls, as a Python program makes them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypedDict, Unpack
from uuid import UUID

import grpc.aio

from notifyqueue.batch import PATIENCE, Outcome, schedule_all
from notifyqueue.channel import TIMEOUT, Connection, Tls
from notifyqueue.recipients import RecipientsClient
from notifyqueue.times import to_duration, to_timestamp
from notifyqueue.v1.notification_pb2 import (
    PRIORITY_UNSPECIFIED,
    Channel,
    Notification,
    NotificationFilter,
    Priority,
    TemplateContent,
)
from notifyqueue.v1.scheduler_pb2 import (
    BatchResult,
    BatchScheduleNotificationsRequest,
    BulkCancelNotificationsRequest,
    BulkCancelNotificationsResponse,
    BulkRedriveNotificationsRequest,
    BulkRedriveNotificationsResponse,
    CancelNotificationRequest,
    GetNotificationRequest,
    GetQueueStatsRequest,
    GetQueueStatsResponse,
    Lane,
    ListNotificationsRequest,
    PauseLaneRequest,
    RedriveNotificationRequest,
    RescheduleNotificationRequest,
    ResumeLaneRequest,
    ScheduleNotificationRequest,
    ScheduleNotificationResponse,
    WatchNotificationRequest,
)
from notifyqueue.v1.scheduler_pb2_grpc import SchedulerStub
from notifyqueue.v1.templates_pb2 import (
    DeleteTemplateRequest,
    GetTemplateRequest,
    GetTemplateResponse,
    ListTemplatesRequest,
    PutTemplateRequest,
    PutTemplateResponse,
    RenderTemplateRequest,
    RenderTemplateResponse,
    Template,
    TemplateVariant,
)
from notifyqueue.v1.templates_pb2_grpc import TemplatesStub
from notifyqueue.watch import watch


class Key(TypedDict, total=False):
    """One of a notification's two names."""

    notification_id: str | UUID
    idempotency_key: str


def connect(
    address: str,
    *,
    api_key: str | None = None,
    tls: Tls = None,
    timeout: timedelta = TIMEOUT,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> AbstractAsyncContextManager["Client"]:
    """A client while the context lasts: `async with connect(address) as client`.

    `address` is a gRPC target: `host:port`, `dns:///host:port`, `unix:/path`. `tls` is a file of trusted certificates,
    or credentials, or True for the certificates that gRPC trusts, or False for plain text; by default only what is on
    this machine for certain is called in plain text. `timeout` bounds each call, its repetitions included: what is
    UNAVAILABLE is tried four times at most. `interceptors` see each call: with OpenTelemetry's, a trace goes on to the
    webhook. Raises ValueError for what cannot be a key.
    """
    return _connected(Connection(address, api_key=api_key, tls=tls, timeout=timeout, interceptors=interceptors))


@asynccontextmanager
async def _connected(connection: Connection) -> AsyncIterator["Client"]:
    async with connection:
        yield Client(connection)


class Client(RecipientsClient):
    """What a Scheduler is asked. Every call raises NotifyQueueError when it fails."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._stub = SchedulerStub(connection.channel)
        self._templates = TemplatesStub(connection.channel)

    async def schedule(self, request: ScheduleNotificationRequest) -> ScheduleNotificationResponse:
        """Accepts a notification: when this returns, it is stored.

        The idempotency key is the caller's, and none is made up here: it must come from what the notification is about
        (an order and what happened to it), so that a program which crashed and asks again asks for the same one. A key
        from a random number would be another one each time, and the mail would be sent twice.
        """
        return await self._connection.call(self._stub.ScheduleNotification, request)

    async def batch(self, requests: Iterable[ScheduleNotificationRequest]) -> Sequence[BatchResult]:
        """Accepts up to 1,000 in one call; a result each, in the same order."""
        whole = BatchScheduleNotificationsRequest(requests=requests)
        answer = await self._connection.call(self._stub.BatchScheduleNotifications, whole)
        return answer.results

    def schedule_all(
        self, requests: Iterable[ScheduleNotificationRequest], *, patience: timedelta = PATIENCE
    ) -> AsyncGenerator[Outcome[int], None]:
        """Accepts any number, four batches under way at once. Each outcome's `tag` is the position of its request.

        Repeats what is refused for a while. When it was broken off, the same again goes on: what is stored is answered
        as `replayed`.
        """
        return schedule_all(self.batch, enumerate(requests), patience=patience)

    async def get(self, *, include_timeline: bool = False, **key: Unpack[Key]) -> Notification:
        """A notification by one of its two names."""
        request = GetNotificationRequest(**_named(key), include_timeline=include_timeline)
        answer = await self._connection.call(self._stub.GetNotification, request)
        return answer.notification

    def watch(
        self, *, within: timedelta | None = None, patience: timedelta = PATIENCE, **key: Unpack[Key]
    ) -> AsyncGenerator[Notification, None]:
        """A notification as it is now, and after each change, until it has ended: the last one is how.

        Of changes that follow one another within half a second, only the last may be seen. Calls again whenever a
        stream ends before, but not where the first call fails, and not when nothing was told for `patience`: these
        raise. So does, with DeadlineExceeded, a notification that has not ended `within` that time; any by default.
        """
        request = WatchNotificationRequest(**_named(key))
        return watch(partial(self._connection.stream, self._stub.WatchNotification, request), within, patience)

    async def list(
        self, filter_: NotificationFilter | None = None, *, page_size: int = 0
    ) -> AsyncGenerator[Notification, None]:
        """Notifications, newest first. Asks for the next page when it is wanted."""
        token = ""
        while True:
            request = ListNotificationsRequest(filter=filter_, page_size=page_size, page_token=token)
            page = await self._connection.call(self._stub.ListNotifications, request)
            for notification in page.notifications:
                yield notification
            token = page.next_page_token
            if not token:  # and nothing else is the end: pages may be short or empty
                return

    async def cancel(self, *, reason: str = "", **key: Unpack[Key]) -> Notification:
        """Cancels what no worker has taken. Raises StatusConflict for anything else."""
        request = CancelNotificationRequest(**_named(key), reason=reason)
        answer = await self._connection.call(self._stub.CancelNotification, request)
        return answer.notification

    async def reschedule(
        self,
        *,
        due: datetime | timedelta | None = None,
        priority: "Priority.ValueType" = PRIORITY_UNSPECIFIED,
        reason: str = "",
        **key: Unpack[Key],
    ) -> Notification:
        """Gives what no worker has taken another due time (or one that long after now), priority, or both."""
        request = RescheduleNotificationRequest(**_named(key), priority=priority, reason=reason)
        if isinstance(due, timedelta):
            request.delay.CopyFrom(to_duration(due))
        elif due is not None:
            request.due_time.CopyFrom(to_timestamp(due))
        answer = await self._connection.call(self._stub.RescheduleNotification, request)
        return answer.notification

    async def bulk_cancel(
        self,
        filter_: NotificationFilter,
        *,
        limit: int = 0,
        dry_run: bool = False,
        reason: str = "",
        page_token: str = "",
    ) -> BulkCancelNotificationsResponse:
        """Cancels at most `limit` of those that fit, newest first. The answer's `next_page_token` goes on below."""
        request = BulkCancelNotificationsRequest(
            filter=filter_, limit=limit, dry_run=dry_run, reason=reason, page_token=page_token
        )
        return await self._connection.call(self._stub.BulkCancelNotifications, request)

    async def redrive(self, *, reason: str = "", **key: Unpack[Key]) -> Notification:
        """Sends what is FAILED or DEAD_LETTERED back to be tried again. Raises StatusConflict, NoLongerSendable."""
        request = RedriveNotificationRequest(**_named(key), reason=reason)
        answer = await self._connection.call(self._stub.RedriveNotification, request)
        return answer.notification

    async def bulk_redrive(
        self,
        filter_: NotificationFilter,
        *,
        limit: int = 0,
        dry_run: bool = False,
        reason: str = "",
        spread_over: timedelta = timedelta(),
        page_token: str = "",
    ) -> BulkRedriveNotificationsResponse:
        """Sends back at most `limit` of those that fit, oldest first: DEAD_LETTERED ones, unless FAILED are asked for.

        They become due one by one over `spread_over`. The answer's `next_page_token` goes on above; with the same span,
        for each call spreads its own over the whole of it.
        """
        request = BulkRedriveNotificationsRequest(
            filter=filter_, limit=limit, dry_run=dry_run, reason=reason, page_token=page_token
        )
        request.spread_over.CopyFrom(to_duration(spread_over))
        return await self._connection.call(self._stub.BulkRedriveNotifications, request)

    async def put_template(
        self, name: str, variants: Iterable[TemplateVariant], *, default_locale: str
    ) -> PutTemplateResponse:
        """Stores the next version of a template; the same content as the newest one makes none."""
        request = PutTemplateRequest(name=name, default_locale=default_locale, variants=variants)
        return await self._connection.call(self._templates.PutTemplate, request)

    async def get_template(self, name: str, *, version: int = 0) -> GetTemplateResponse:
        """A template with its texts: the newest version, unless another one is named."""
        return await self._connection.call(self._templates.GetTemplate, GetTemplateRequest(name=name, version=version))

    async def list_templates(self, *, page_size: int = 0) -> AsyncGenerator[Template, None]:
        """All templates without their texts, the newest names first. Asks for the next page when it is wanted."""
        token = ""
        while True:
            request = ListTemplatesRequest(page_size=page_size, page_token=token)
            page = await self._connection.call(self._templates.ListTemplates, request)
            for template in page.templates:
                yield template
            token = page.next_page_token
            if not token:
                return

    async def delete_template(self, name: str) -> None:
        """Erases a template in all its versions. What was accepted with it is sent as it was accepted."""
        await self._connection.call(self._templates.DeleteTemplate, DeleteTemplateRequest(name=name))

    async def render_template(
        self, name: str, variables: Mapping[str, Any], *, version: int = 0, locale: str = ""
    ) -> RenderTemplateResponse:
        """What a notification with this template would say. Raises TemplateRenderFailed."""
        request = RenderTemplateRequest(name=name, version=version, locale=locale, variables_json=json.dumps(variables))
        return await self._connection.call(self._templates.RenderTemplate, request)

    async def stats(self) -> GetQueueStatsResponse:
        """How much waits, for how long, and how much is under way."""
        return await self._connection.call(self._stub.GetQueueStats, GetQueueStatsRequest())

    async def pause_lane(self, channel: "Channel.ValueType", *, reason: str) -> Lane:
        """Stops a channel's lane on every worker."""
        request = PauseLaneRequest(channel=channel, reason=reason)
        answer = await self._connection.call(self._stub.PauseLane, request)
        return answer.lane

    async def resume_lane(self, channel: "Channel.ValueType", *, reason: str = "") -> Lane:
        """Lets a channel's lane go on."""
        request = ResumeLaneRequest(channel=channel, reason=reason)
        answer = await self._connection.call(self._stub.ResumeLane, request)
        return answer.lane


def to_template(
    name: str,
    channel: "Channel.ValueType",
    variables: Mapping[str, Any],
    *,
    version: int = 0,
    locale: str = "",
) -> TemplateContent:
    """What a request says that is rendered from a template: `ScheduleNotificationRequest(template=to_template(…))`."""
    return TemplateContent(
        template=name, channel=channel, variables_json=json.dumps(variables), version=version, locale=locale
    )


class _Named(TypedDict, total=False):
    notification_id: str
    idempotency_key: str


def _named(key: Key) -> _Named:
    match key:
        case {"notification_id": id_, **rest} if not rest:
            return {"notification_id": str(id_)}
        case {"idempotency_key": name, **rest} if not rest:
            return {"idempotency_key": name}
    raise TypeError("exactly one of notification_id and idempotency_key is needed")
