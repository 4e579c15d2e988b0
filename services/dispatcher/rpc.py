"""The WebhookDispatcher service: a message in, one call, a message out."""

import structlog

from notifyqueue.v1 import dispatcher_pb2, dispatcher_pb2_grpc
from services.dispatcher import messages
from services.dispatcher.dispatch import Dispatch
from services.dispatcher.endpoints import Endpoints
from shared.drain import drain_timeout
from shared.ids import uuid_of
from shared.layers import Context, current_call
from shared.paging import Pages
from shared.server import Service

log = structlog.get_logger()

NAME = dispatcher_pb2.DESCRIPTOR.services_by_name["WebhookDispatcher"].full_name

# A drain names its own bound, which may be an hour.
UNTIMED = frozenset({f"{NAME}/DrainDispatcher"})


class WebhookDispatcher(dispatcher_pb2_grpc.WebhookDispatcherServicer):
    def __init__(self, endpoints: Endpoints, pages: Pages, dispatch: Dispatch, *, drain_timeout: float) -> None:
        self._endpoints = endpoints
        self._pages = pages
        self._dispatch = dispatch
        self._drain_timeout = drain_timeout

    async def CreateEndpoint(
        self, request: dispatcher_pb2.CreateEndpointRequest, context: Context
    ) -> dispatcher_pb2.CreateEndpointResponse:
        endpoint, secret = await self._endpoints.create(_tenant(), messages.draft(request))
        log.info("endpoint.created", endpoint_id=str(endpoint.id), actor=_actor())
        return dispatcher_pb2.CreateEndpointResponse(endpoint=messages.endpoint(endpoint), secret=secret)

    async def ListEndpoints(
        self, request: dispatcher_pb2.ListEndpointsRequest, context: Context
    ) -> dispatcher_pb2.ListEndpointsResponse:
        page = self._pages.read(_tenant(), b"", request.page_size, request.page_token)
        shown, end = await self._endpoints.list_page(_tenant(), page)
        return dispatcher_pb2.ListEndpointsResponse(
            endpoints=map(messages.endpoint, shown),
            next_page_token=self._pages.token(_tenant(), b"", end) if end else "",
        )

    async def DeleteEndpoint(
        self, request: dispatcher_pb2.DeleteEndpointRequest, context: Context
    ) -> dispatcher_pb2.DeleteEndpointResponse:
        endpoint_id = uuid_of("endpoint_id", request.endpoint_id)
        await self._endpoints.delete(_tenant(), endpoint_id)
        log.info("endpoint.deleted", endpoint_id=str(endpoint_id), actor=_actor())
        return dispatcher_pb2.DeleteEndpointResponse()

    async def GetDispatcherStatus(
        self, request: dispatcher_pb2.GetDispatcherStatusRequest, context: Context
    ) -> dispatcher_pb2.GetDispatcherStatusResponse:
        return dispatcher_pb2.GetDispatcherStatusResponse(dispatcher=self._status())

    async def DrainDispatcher(
        self, request: dispatcher_pb2.DrainDispatcherRequest, context: Context
    ) -> dispatcher_pb2.DrainDispatcherResponse:
        timeout = drain_timeout(request, self._drain_timeout)
        log.info("dispatcher.drain_asked", actor=_actor())
        await self._dispatch.drain(timeout)
        return dispatcher_pb2.DrainDispatcherResponse(dispatcher=self._status())

    async def ResumeDispatcher(
        self, request: dispatcher_pb2.ResumeDispatcherRequest, context: Context
    ) -> dispatcher_pb2.ResumeDispatcherResponse:
        log.info("dispatcher.resume_asked", actor=_actor())
        self._dispatch.resume()
        return dispatcher_pb2.ResumeDispatcherResponse(dispatcher=self._status())

    def _status(self) -> dispatcher_pb2.DispatcherStatus:
        return messages.dispatcher(self._dispatch.status())


def service(servicer: WebhookDispatcher) -> Service:
    return Service(NAME, lambda server: dispatcher_pb2_grpc.add_WebhookDispatcherServicer_to_server(servicer, server))


def _tenant() -> str:
    return current_call.get().tenant


def _actor() -> str:
    return current_call.get().actor
