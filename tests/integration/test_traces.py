"""One trace from the client's call to the webhook, as a collector is told of it; and what the server says of an RPC."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import grpc.aio
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from notifyqueue.v1.notification_pb2 import EmailContent
from notifyqueue.v1.provider_pb2 import DeliverResponse
from sandbox.collector import Span
from shared.layers import Bounds
from shared.telemetry import spans as made
from shared.telemetry.metrics import RPC_TIME
from shared.telemetry.tracer import Tracer
from tests.conftest import login
from tests.integration.conftest import StartScheduler, StartWorker
from tests.integration.test_dispatcher_rig import Receiver
from tests.integration.test_server import NAME, SECRET, Lines, Probe, Serve, lines, probe, read, serve
from tests.notifications import Notifications
from tests.pretended import deliver
from tests.providers import ScriptedProvider
from tests.remote_server import remote, remote_server
from tests.spans import told
from tests.telemetry import reading
from tests.waiting import eventually
from tools import trace_page

__all__ = ["lines", "probe", "serve"]  # fixtures

PERSONAL = (trace_page.MARK.encode(), b"example.org", b"/hook")


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
    for other in ("second", "third"):
        assert {span.id for span in recorded.spans(other)} == {span.id for span in batch.spans}
    (inserted,) = batch.named("insert_notifications")
    assert (batch.above(inserted), batch.linked(inserted)) == ([], ["send EMAIL"] * 3)
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
    expected = {(post.facts["notifyqueue.event.id"], f"00-{post.trace}-{post.id}") for post in posts}
    assert {(headers["webhook-id"], headers["traceparent"][:52]) for headers, _ in receiver.posts} == expected
    ours = b"".join(span.whole.SerializeToString() for span in every.values() if span.service != "shop")
    assert [mark for mark in PERSONAL if mark in ours] == []

    page = trace_page.PAGE.read_text()
    assert page == trace_page.with_sections(page, trace_page.sections(recorded)), "python -m tools.trace_page"


# --- the server's span of an RPC

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_server_says_of_each_rpc_how_it_ended_and_nothing_of_why(serve: Serve, probe: Probe) -> None:
    with told() as found:
        client = await serve(call_timeout=2.0)
        await client.call("Echo", SECRET, metadata=(("traceparent", CALLER), ("authorization", SECRET)))
        for method in ("Refuse", "Fail", "Lose", "TimeOut"):
            with pytest.raises(grpc.aio.AioRpcError):
                await client.call(method, SECRET)
        assert [answer.value async for answer in client.stream("Count", "n")] == ["n 0", "n 1", "n 2"]
        watching = client.stream("Watch", "w")
        await watching.read()
        watching.cancel()
        await eventually(lambda: probe.running == 0)
        # Probes make none, and stay streams that work.
        await client.status(NAME)
        await client.health.Watch(health_pb2.HealthCheckRequest(service="")).read()
        with pytest.raises(grpc.aio.AioRpcError):
            await client.call("Nothing")
        await eventually(lambda: len(found.spans) == 7)
    ended = {
        span.form.name: (span.facts["rpc.status_code"], span.failed, span.facts.get("error.type"))
        for span in found.spans
    }
    assert ended == {
        f"{NAME}/Echo": ("OK", False, None),
        f"{NAME}/Refuse": ("NOT_FOUND", False, None),
        f"{NAME}/Fail": ("INTERNAL", True, "INTERNAL"),
        f"{NAME}/Lose": ("UNAVAILABLE", True, "UNAVAILABLE"),
        f"{NAME}/TimeOut": ("INTERNAL", True, "INTERNAL"),
        f"{NAME}/Count": ("OK", False, None),
        f"{NAME}/Watch": ("CANCELLED", False, None),
    }
    assert all(span.form.facts == {"rpc.system.name": "grpc", "rpc.method": span.form.name} for span in found.spans)
    echo = found.spans[0]
    assert echo.parent
    assert echo.parent.text == CALLER
    assert SECRET not in "".join(found.lines())


async def test_a_deadline_is_a_fault_of_ours_but_where_a_call_may_stay_open(serve: Serve, lines: Lines) -> None:
    stream, wait, long = f"{NAME}/Watch", f"{NAME}/Wait", f"{NAME}/WaitLong"
    with told() as found, reading():
        client = await serve(bounds={stream: Bounds(10, 0.3)}, untimed=frozenset({long}))
        ended = await asyncio.gather(
            read(client.stream("Watch")),
            read(client.stream("Watch", timeout=0.5)),
            client.call("WaitLong", timeout=0.5),
            client.call("Wait", timeout=0.5),
            return_exceptions=True,
        )
        await eventually(lambda: len(found.spans) == 4)
        assert {error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError)} == {
            StatusCode.DEADLINE_EXCEEDED
        }
        faults = Counter((span.form.name, span.failed, span.facts.get("error.type")) for span in found.spans)
        assert faults == {
            (stream, False, None): 2,
            (long, False, None): 1,
            (wait, True, "DEADLINE_EXCEEDED"): 1,
        }
        counted = {attributes: sum(cell[:-1]) for attributes, cell in RPC_TIME.values().items()}
        assert counted == {
            (stream, "DEADLINE_EXCEEDED", ""): 2,
            (long, "DEADLINE_EXCEEDED", ""): 1,
            (wait, "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"): 1,
        }
    said = Counter((line["method"], line["code"], line["level"]) for line in lines.events("rpc.done"))
    assert said == {
        (stream, "DEADLINE_EXCEEDED", "warning"): 2,
        (long, "DEADLINE_EXCEEDED", "warning"): 1,
        (wait, "DEADLINE_EXCEEDED", "error"): 1,
    }


# --- the call to an implementation of the contract


@pytest.mark.parametrize(
    ("says", "code", "error"),
    [
        (DeliverResponse(outcome=DeliverResponse.OUTCOME_ACCEPTED), "OK", None),
        (DeliverResponse(outcome=DeliverResponse.OUTCOME_TRANSIENT, code="mk-words"), "OK", "other"),
        (StatusCode.UNAVAILABLE, "UNAVAILABLE", "rpc.UNAVAILABLE"),
    ],
)
async def test_a_trace_goes_on_at_whoever_implements_the_contract_and_has_none_of_its_words(
    says: DeliverResponse | StatusCode, code: str, error: str | None
) -> None:
    async with remote_server(says) as server, remote(server.address, token="t0k") as provider:
        with told() as found, capture_logs() as lines:
            await deliver(provider, "+447700900123", {"text": "Hallo"}, uuid4())
    (span,) = found.spans
    assert server.metadata[0]["traceparent"] == span.text
    assert (span.facts["rpc.status_code"], span.facts.get("error.type")) == (code, error)
    assert span.form.name == "notifyqueue.v1.Provider/Deliver"
    shown = f"{found.lines()} {lines}"
    assert not re.search("mk-words|Hallo|447700|t0k", shown)


# --- off


async def test_where_nobody_listens_no_span_is_made_on_the_way_of_a_notification(
    start_scheduler: StartScheduler,
    start_worker: StartWorker,
    database_url: str,
    notifications: Notifications,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []
    for kind in (made.Unsampled, made.Recorded):
        monkeypatch.setattr(kind, "__init__", lambda self, *_, **__: counted.append(type(self).__name__))
    monkeypatch.setattr(Tracer, "start", lambda *_, **__: counted.append("Tracer.start"))
    stub = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))
    await start_worker(database_url, ScriptedProvider())
    for number in range(3):
        email = EmailContent(subject="s", text="t")
        request = scheduler_pb2.ScheduleNotificationRequest(
            idempotency_key=f"k{number}", address="anna@example.org", email=email
        )
        await stub.ScheduleNotification(request, metadata=(("traceparent", CALLER),))

    async def sent() -> bool:
        return await notifications.statuses() == {"SENT": 3}

    await eventually(sent)
    assert counted == []
    row = await notifications.connection.fetchrow(
        "SELECT count(trace_context), count(last_trace_context) FROM notifyqueue.notifications"
    )
    assert row is not None
    assert tuple(row) == (0, 0)
