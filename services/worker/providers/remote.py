"""Whatever somebody else has written to deliver with, behind the contract `Provider`."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Self

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as Part

from notifyqueue.v1 import notification_pb2, provider_pb2, provider_pb2_grpc
from services.worker import spans
from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code
from services.worker.providers.answers import RATE_REST
from services.worker.providers.remote_codes import ANSWERS, TABLE
from services.worker.providers.remote_settings import RemoteSettings
from shared.telemetry import traces

DELIVER = "notifyqueue.v1.Provider/Deliver"
MAX_ANSWER = 64 * 1024
MAX_DELAY = timedelta(hours=24)

OPTIONS = (
    ("grpc.enable_retries", 0),  # also those that the library makes by itself
    ("grpc.service_config_disable_resolution", 1),  # nobody's DNS configures them either
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.initial_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


class Remote(Provider):
    """What it promises is the implementation's: it is told the delivery key, and asked to remember it."""

    name = "remote"

    def __init__(self, settings: RemoteSettings, channel: str) -> None:
        self._settings = settings
        self._lane = channel
        self._metadata = (("authorization", f"Bearer {settings.token}"),) if settings.token else ()

    async def __aenter__(self) -> Self:
        settings = self._settings
        if settings.tls:
            trusted = await asyncio.to_thread(settings.ca_file.read_bytes) if settings.ca_file else None
            credentials = grpc.ssl_channel_credentials(trusted)
            self._channel = grpc.aio.secure_channel(settings.address, credentials, options=OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(settings.address, options=OPTIONS)
        self._stub = provider_pb2_grpc.ProviderStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            request = _request(message, self._lane)
        except (json_format.ParseError, TypeError, ValueError):
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        if how := await self._disconnected():
            return Outcome(Answer.TRANSIENT, f"connect-{how}")
        # Not by the library's interceptor: it tells of an error what the implementation says, and that may be anything.
        with spans.call(spans.rpc(DELIVER, self._settings.address)) as span:
            handover.begin()
            code, outcome = await self._call(request, (*self._metadata, *traces.headers(span).items()))
            span.set("rpc.status_code", code)
            spans.answered(span, outcome, self.name)
        return outcome

    async def _call(
        self, request: provider_pb2.DeliverRequest, metadata: Sequence[tuple[str, str]]
    ) -> tuple[str, Outcome]:
        try:
            response = await self._stub.Deliver(request, timeout=self._settings.timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name, _judge(error.code().name, error.details() or "")
        return grpc.StatusCode.OK.name, _outcome(response)

    async def _disconnected(self) -> str | None:
        """Why there is no connection; None where there is one. A call waits for none: it could not be told apart from
        one that was sent.
        """
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                state = self._channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        return "failed"
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            return "timeout"
        return None


def _request(message: Message, channel: str) -> provider_pb2.DeliverRequest:
    """Raises ParseError, TypeError, ValueError."""
    request = provider_pb2.DeliverRequest(
        delivery_key=str(message.delivery_key),
        attempt=message.attempt,
        channel=notification_pb2.Channel.Value(f"CHANNEL_{channel}"),
        address=message.address,
    )
    part: Part = getattr(request, channel.lower())
    part.SetInParent()
    json_format.ParseDict(dict(message.content), part)
    return request


def _outcome(response: provider_pb2.DeliverResponse) -> Outcome:
    known = provider_pb2.DeliverResponse.Outcome.DESCRIPTOR.values_by_number.get(response.outcome)
    name = known.name if known else "OUTCOME_UNSPECIFIED"
    answer = ANSWERS.get(name, Answer.UNKNOWN)
    code = safe_code(response.code or name.removeprefix("OUTCOME_"))
    if answer is Answer.ACCEPTED:
        return Outcome(answer, code, response.provider_message_id or None)
    rest = _delay(response.retry_delay) or (RATE_REST if answer is Answer.THROTTLED else timedelta())
    return Outcome(answer, code, not_before=rest, opted_out=name == "OUTCOME_OPTED_OUT")


def _judge(status: str, words: str) -> Outcome:
    row = next(row for row in TABLE if row.fits(status, "", words))
    return Outcome(row.answer, f"rpc.{status}", not_before=row.rest)


def _delay(asked: Duration) -> timedelta:
    """Whoever answers writes it, so it can be anything."""
    return timedelta(seconds=min(max(asked.seconds + asked.nanos / 1e9, 0), MAX_DELAY.total_seconds()))
