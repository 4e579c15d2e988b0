"""One trace from the client's call to the webhook, as a collector is told of it; and what the server says of an RPC."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanContext

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from notifyqueue.v1.provider_pb2 import DeliverResponse
from sandbox.collector import Span
from services.worker.providers import Handover, Message
from shared.errors import ApiError, MethodUnknown, ResourceNotFound
from shared.layers import Context, errors_mapped, logged
from shared.server import Health, Server, Service
from shared.telemetry import traces
from shared.telemetry import spans as made
from shared.telemetry.serving import traced
from tests.conftest import login
from tests.integration.conftest import StartScheduler, StartWorker
from tests.integration.test_dispatcher_rig import Receiver
from tests.providers import ScriptedProvider
from tests.remote_server import remote, remote_server
from tests.spans import Told
from tests.waiting import eventually
from tools import trace_page

PERSONAL = (b"anna@", b"berta@", b"clara@", b"dora@", b"Your order", b"on its way", b"example.org", b"/hook")


class Tree:
    """The spans around one notification."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.began)
        self._by_id = {span.id: span for span in self.spans}

    def named(self, name: str, **facts: Any) -> list[Span]:
        """In the order in which they began. `facts` by the last part of their names."""
        return [span for span in self.spans if span.name == name and facts.items() <= _short(span).items()]

    def above(self, span: Span) -> list[tuple[str, str]]:
        """What it hangs on, up to the root."""
        found = []
        while span.parent in self._by_id:
            span = self._by_id[span.parent]
            found.append((span.name, span.kind))
        return found

    def below(self, span: Span) -> list[str]:
        return [other.name for other in self.spans if other.parent == span.id]

    def linked(self, span: Span) -> list[str]:
        return [self._by_id[link].name for link in span.links]


def _short(span: Span) -> dict[str, Any]:
    return {name.rpartition(".")[2]: value for name, value in span.facts.items()}


SCHEDULE = "notifyqueue.v1.Scheduler/ScheduleNotification"
BATCH = "notifyqueue.v1.Scheduler/BatchScheduleNotifications"
REDRIVE = "notifyqueue.v1.Scheduler/RedriveNotification"
SENDING = [("send EMAIL", "producer"), (SCHEDULE, "server"), (f"/{SCHEDULE}", "client")]


async def test_one_trace_goes_from_the_client_to_the_webhook(database_url: str) -> None:
    async with Receiver() as receiver:
        recorded = await trace_page.record(
            database_url, lambda service: login(database_url, service), webhook_url=receiver.url
        )

    sent = Tree(recorded.spans("sent"))
    (attempt,) = sent.named("deliver EMAIL", outcome="SENT", attempt=1)
    assert (attempt.kind, attempt.failed, sent.above(attempt)) == ("consumer", False, SENDING)
    assert sent.below(attempt) == ["send mail", "mark_sent", "POST"]
    (post,) = sent.named("POST", status_code=204)
    assert post.kind == "client"
    assert {span.trace for span in sent.spans} == {attempt.trace}

    retried = Tree(recorded.spans("retried"))
    first, second = retried.named("deliver EMAIL")
    assert (_short(first)["outcome"], first.failed, _short(first)["type"]) == ("ATTEMPT_FAILED", True, "451")
    assert retried.below(first) == ["send mail", "retry_later"]
    assert (_short(second)["outcome"], second.failed) == ("SENT", False)
    assert retried.above(first) == retried.above(second) == SENDING

    dead = Tree(recorded.spans("dead"))
    _, last, again = dead.named("deliver EMAIL")
    assert (_short(last)["outcome"], last.failed) == ("ATTEMPTS_EXHAUSTED", True)
    assert dead.below(last) == ["send mail", "end_unsent", "POST"]  # of the death
    assert (_short(again)["attempt"], dead.above(again), dead.linked(again)) == (1, SENDING, [REDRIVE])
    assert dead.below(again) == ["send mail", "mark_sent", "POST"]
    (redrive,) = dead.named(REDRIVE)
    assert dead.above(redrive) == [(f"/{REDRIVE}", "client")]

    late = Tree(recorded.spans("late"))
    (attempt,) = late.named("deliver EMAIL")
    (asked,) = late.named("send EMAIL")
    assert (late.above(attempt), late.linked(attempt), attempt.trace != asked.trace) == ([], ["send EMAIL"], True)
    assert late.below(attempt) == ["send mail", "mark_sent", "POST"]

    batch = Tree(recorded.spans("first"))
    assert {span.id for span in recorded.spans("second")} == {span.id for span in batch.spans}
    for attempt in (attempts := batch.named("deliver EMAIL")):
        assert batch.above(attempt) == [("send EMAIL", "producer"), (BATCH, "server"), (f"/{BATCH}", "client")]
    sends = batch.named("send EMAIL")
    assert sorted(span.parent for span in attempts) == sorted(span.id for span in sends)
    written = batch.named("mark_sent")
    assert sorted(cause for span in written for cause in (span.links or [span.parent])) == sorted(
        span.id for span in attempts
    )

    every = {span.id: span for span in recorded.collector.spans}
    posts = [span for span in every.values() if span.name == "POST"]
    expected = {(str(_facts(post, "event.id")), f"00-{post.trace}-{post.id}") for post in posts}
    assert {(headers["webhook-id"], headers["traceparent"][:52]) for headers, _ in receiver.posts} == expected
    ours = b"".join(span.whole.SerializeToString() for span in every.values() if span.service != "shop")
    assert [mark for mark in PERSONAL if mark in ours] == []

    page = trace_page.PAGE.read_text()
    assert page == trace_page.with_sections(page, trace_page.sections(recorded)), "python -m tools.trace_page"


def _facts(span: Span, name: str) -> Any:
    return span.facts[f"notifyqueue.{name}"]
