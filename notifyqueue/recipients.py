"""The calls about people: who they are, and who must not be sent to."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TypedDict

from notifyqueue.channel import Connection
from notifyqueue.times import to_timestamp
from notifyqueue.v1.notification_pb2 import Channel
from notifyqueue.v1.recipients_pb2 import (
    BulkDeleteSuppressionsRequest,
    BulkDeleteSuppressionsResponse,
    DeleteSubscriberRequest,
    DeleteSubscriberResponse,
    DeleteSuppressionRequest,
    GetSubscriberRequest,
    ListSubscribersRequest,
    ListSuppressionsRequest,
    PutSubscriberRequest,
    PutSubscriberResponse,
    PutSuppressionRequest,
    PutSuppressionResponse,
    Subscriber,
    Suppression,
    SuppressionSource,
)
from notifyqueue.v1.recipients_pb2_grpc import RecipientsStub


class RecipientsClient:
    """The part of `Client` that asks the service Recipients."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._recipients = RecipientsStub(connection.channel)

    async def put_subscriber(
        self,
        subscriber: str,
        *,
        email: str = "",
        phone: str = "",
        push: str = "",
        locale: str = "",
        time_zone: str = "",
    ) -> PutSubscriberResponse:
        """Sees to it that a subscriber is what this says, and nothing else."""
        request = PutSubscriberRequest(
            subscriber=subscriber, email=email, phone=phone, push=push, locale=locale, time_zone=time_zone
        )
        return await self._connection.call(self._recipients.PutSubscriber, request)

    async def get_subscriber(self, subscriber: str) -> Subscriber:
        """Raises ResourceNotFound."""
        request = GetSubscriberRequest(subscriber=subscriber)
        answer = await self._connection.call(self._recipients.GetSubscriber, request)
        return answer.subscriber

    async def list_subscribers(
        self, filter_: ListSubscribersRequest | None = None, *, page_size: int = 0
    ) -> AsyncGenerator[Subscriber, None]:
        """All, or those with an address, who was put last first. Asks for the next page when it is wanted."""
        request = ListSubscribersRequest()
        request.MergeFrom(filter_ or request)
        request.page_size = page_size
        while True:
            page = await self._connection.call(self._recipients.ListSubscribers, request)
            for subscriber in page.subscribers:
                yield subscriber
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def delete_subscriber(self, subscriber: str) -> DeleteSubscriberResponse:
        """Erases a subscriber, with what was said to him and where it went. `more` of the answer asks for another call.

        Raises ResourceNotFound.
        """
        request = DeleteSubscriberRequest(subscriber=subscriber)
        return await self._connection.call(self._recipients.DeleteSubscriber, request)

    async def put_suppression(
        self,
        channel: "Channel.ValueType",
        address: str,
        source: "SuppressionSource.ValueType",
        *,
        subscriber: str = "",
        category: str = "",
    ) -> PutSuppressionResponse:
        """Sees to it that nothing is sent there any more. `in_flight` of the answer counts what may still go out.

        Of an address on a channel; or, where there is no address, of a `subscriber`, on a channel or all (0).
        """
        request = PutSuppressionRequest(channel=channel, category=category, source=source, **_whom(address, subscriber))
        return await self._connection.call(self._recipients.PutSuppression, request)

    async def list_suppressions(
        self, filter_: ListSuppressionsRequest | None = None, *, page_size: int = 0
    ) -> AsyncGenerator[Suppression, None]:
        """Suppressions, newest first. Asks for the next page when it is wanted."""
        request = ListSuppressionsRequest()
        request.MergeFrom(filter_ or request)
        request.page_size = page_size
        while True:
            page = await self._connection.call(self._recipients.ListSuppressions, request)
            for suppression in page.suppressions:
                yield suppression
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def delete_suppression(
        self,
        channel: "Channel.ValueType",
        address: str,
        source: "SuppressionSource.ValueType",
        *,
        subscriber: str = "",
        category: str = "",
    ) -> None:
        """Takes one away; others of the same address go on to hold. Raises ResourceNotFound where there is none."""
        request = DeleteSuppressionRequest(
            channel=channel, category=category, source=source, **_whom(address, subscriber)
        )
        await self._connection.call(self._recipients.DeleteSuppression, request)

    async def bulk_delete_suppressions(
        self,
        source: "SuppressionSource.ValueType",
        since: datetime,
        *,
        limit: int = 0,
        dry_run: bool = False,
        page_token: str = "",
    ) -> BulkDeleteSuppressionsResponse:
        """Takes away at most `limit` of what a source has brought since then, newest first."""
        request = BulkDeleteSuppressionsRequest(source=source, limit=limit, dry_run=dry_run, page_token=page_token)
        request.since.CopyFrom(to_timestamp(since))
        return await self._connection.call(self._recipients.BulkDeleteSuppressions, request)


class _Whom(TypedDict, total=False):
    address: str
    subscriber: str


def _whom(address: str, subscriber: str) -> _Whom:
    if address and subscriber:
        raise TypeError("at most one of address and subscriber is needed")
    return {"subscriber": subscriber} if subscriber else {"address": address}
