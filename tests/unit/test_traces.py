"""Spans: what they say, who is told of them, and what it costs nobody that they are not taken."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc.aio
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind
from structlog.testing import capture_logs

from services.worker import spans as attempts
from services.worker.outcome import Ended, Later, Sent, Verdict
from shared import telemetry
from shared.telemetry import environment, metrics, otlp, readers, serving, traces
from shared.telemetry.forms import Fact, Form
from shared.telemetry.metrics import Metric
from shared.telemetry.otlp import MAX_LINKS
from shared.telemetry.spans import NOBODYS, Recorded, Reference, Unsampled, current
from shared.telemetry.tracer import Tracer
from tests.spans import ABOUT, told
from tests.unit.test_attempt import CLAIM
from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[2]
FORM = Form("deliver EMAIL", SpanKind.CONSUMER, {"messaging.system": "notifyqueue", "port": 25, "yes": True})


def context(number: int = 1, flags: str = "01", state: str = "") -> Reference:
    ids = (2**100 + number).to_bytes(16, "big"), (2**40 + number).to_bytes(8, "big")
    return Reference(*ids, f"-{flags} {state}".rstrip())


# --- on the wire


@pytest.mark.parametrize(
    ("parent", "links"),
    [
        (None, ()),
        (context(), ()),
        (context(state="vendor=a,other=b"), (context(2), context(3))),
        (None, [context(number) for number in range(MAX_LINKS + 2)]),
    ],
)
@pytest.mark.parametrize("failed", [False, True])
def test_what_goes_out_is_what_the_librarys_own_encoder_makes_of_it(
    parent: Reference | None, links: Sequence[Reference], failed: bool
) -> None:
    facts: Mapping[str, Fact] = {
        "messaging.message.id": str(uuid4()),
        "notifyqueue.attempt": 3,
        "note": "☃" * 200,
        "no.id": "é",
    }
    with told() as found, traces.start(FORM, parent=parent, links=links, facts=facts) as span:
        if failed:
            span.fail("451")
        with traces.below(FORM):
            pass
    whose, entries = otlp.whose(ABOUT), [otlp.entry(span) for span in reversed(found.spans)]
    ours = ExportTraceServiceRequest.FromString(otlp.request(whose, entries))
    theirs = encode_spans(found.readable()[::-1])
    outer, inner = ours.resource_spans[0].scope_spans[0].spans
    assert (outer.flags & otlp.REMOTE, inner.flags & otlp.REMOTE) == (otlp.REMOTE if parent else otlp.KNOWN, otlp.KNOWN)
    assert {link.flags & otlp.REMOTE for link in outer.links} <= {otlp.REMOTE}
    for request in (ours, theirs):
        for one in request.resource_spans[0].scope_spans[0].spans:
            one.flags &= ~0xFF  # of W3C, which the library leaves out
            for link in one.links:
                link.flags &= ~0xFF
    dropped = max(0, len(links) - MAX_LINKS)
    first = theirs.resource_spans[0].scope_spans[0].spans[0]
    del first.links[MAX_LINKS:]
    first.dropped_links_count = dropped
    first.status.SetInParent()
    ours.resource_spans[0].scope_spans[0].spans[0].status.SetInParent()
    for request in (ours, theirs):
        request.resource_spans[0].scope_spans[0].spans[1].ClearField("status")
    assert ours == theirs


def test_a_span_has_no_words_of_anybody() -> None:
    with told() as found, suppress(ValueError), traces.start(FORM):
        raise ValueError("hunter2")
    assert found.spans[0].facts == {"error.type": "ValueError"}
    assert found.spans[0].failed
    assert "hunter2" not in found.lines()[0]


# --- which are made


@pytest.mark.parametrize(
    ("sampler", "parent", "links", "made"),
    [
        (None, None, (), True),
        (None, context(), (), True),
        (None, context(flags="00"), (), False),  # nor what hangs on it
        (None, None, (context(),), True),
        (None, None, (context(flags="00"),), False),  # what follows late is sampled where that was
        (None, None, (context(flags="00"), context()), True),
        ("always_off", context(), (), False),
        ("always_off", None, (context(),), False),  # it asks nobody
        ("always_on", None, (context(flags="00"),), True),
        ("parentbased_always_off", None, (), False),
        ("parentbased_always_off", context(), (), True),
        ("parentbased_always_off", None, (context(),), True),
        ("always_on", context(flags="00"), (), True),
    ],
)
def test_a_span_is_made_where_the_sampler_wants_it(
    monkeypatch: pytest.MonkeyPatch,
    sampler: str | None,
    parent: Reference | None,
    links: Sequence[Reference],
    made: bool,
) -> None:
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    tracer = Tracer(ABOUT)
    tracer.told = print
    span = tracer.start(FORM, parent=parent, links=links)
    assert (type(span), span.sampled) == (Recorded if made else Unsampled, made)
    if parent:
        assert (span.trace_id, span.rest[3:]) == (parent.trace_id, parent.rest[3:])
    with told():
        assert traces.restored(span.text) == span


def test_below_one_that_is_not_made_none_is() -> None:
    with told() as found, traces.start(FORM, parent=context(flags="00")), traces.below(FORM):
        here = current()
    assert here
    assert (here.trace_id, here.sampled, found.spans) == (context().trace_id, False, [])


def test_a_statement_hangs_on_its_cause_or_is_linked_to_all_of_them() -> None:
    with told() as found:
        for causes in ([context()], [None], [context(), None, context(2)]):
            with traces.group("mark_sent", "UPDATE", "notifications", causes):
                pass
    alone, uncaused, many = found.spans
    assert (alone.parent, alone.links) == (context(), ())
    assert (uncaused.parent, uncaused.links) == (None, ())
    assert (many.parent, many.links, many.facts) == (None, [context(), context(2)], {"db.operation.batch.size": 3})


# --- attempts


@pytest.mark.parametrize(
    ("recent", "redriven", "parent", "links"),
    [(True, False, 1, ()), (False, False, None, (1,)), (True, True, 1, (2,)), (False, True, None, (1, 2))],
)
def test_an_attempt_hangs_on_whoever_asked_a_moment_ago_and_is_linked_to_whoever_asked_before(
    recent: bool, redriven: bool, parent: int | None, links: Sequence[int]
) -> None:
    claim = replace(
        CLAIM,
        trace_context=context(1).text,
        last_trace_context=context(2).text if redriven else None,
        recent=recent,
    )
    with told() as found, attempts.deliver(claim):
        pass
    (span,) = found.spans
    assert span.parent == (context(parent) if parent else None)
    assert [*span.links] == [context(number) for number in links]


@pytest.mark.parametrize(
    ("verdict", "outcome", "error"),
    [
        (Sent(), "SENT", None),
        (Ended(reason=None, kind=None), "EXPIRED", None),
        (Ended(reason="OPTED_OUT", kind=None), "SUPPRESSED", None),
        (Ended(reason="MESSAGE_REJECTED", kind="ATTEMPT_FAILED", code="550"), "MESSAGE_REJECTED", "550"),
        (Ended(reason="WORKER_LOST", kind="ATTEMPT_UNKNOWN"), "WORKER_LOST", "WORKER_LOST"),
        (Later(delay=timedelta(), kind=None), "RELEASED", None),
        (Later(delay=timedelta(), kind="ATTEMPT_FAILED", code="451"), "ATTEMPT_FAILED", "451"),
        (None, None, None),
    ],
)
def test_an_attempt_says_what_came_of_it(verdict: Verdict | None, outcome: str | None, error: str | None) -> None:
    with told() as found, attempts.deliver(CLAIM) as span:
        attempts.judged(span, verdict)
    facts = found.spans[0].facts
    assert (facts.get("notifyqueue.outcome"), facts.get("error.type")) == (outcome, error)
    assert found.spans[0].failed is (error is not None)


# --- written down


@pytest.mark.parametrize("state", ["", "vendor=a,other=b"])
def test_what_is_written_down_is_found_again(state: str) -> None:
    with told():
        assert traces.restored(context(state=state).text) == context(state=state)
    assert traces.restored(context(state=state).text) is None  # where nobody listens


@pytest.mark.parametrize(("length", "kept"), [(512, True), (513, False)])
def test_a_state_longer_than_the_standard_asks_to_pass_on_is_dropped(length: int, kept: bool) -> None:
    entries = f"a={'x' * 254},b={'x' * 200}".ljust(length, "x")  # each no longer than the library takes
    assert len(entries) == length
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    found = traces.written(traces.received({"traceparent": parent, "tracestate": entries}))
    assert found == (f"{parent} {entries}" if kept else parent)


@pytest.mark.parametrize(("flags", "passed_on"), [("ff", "03"), ("fc", "00"), ("02", "02"), ("01", "01")])
def test_flags_that_the_standard_has_not_given_a_meaning_are_passed_on_as_none(flags: str, passed_on: str) -> None:
    ids = f"00-{'1' * 32}-{'2' * 16}"
    assert traces.written(traces.received({"traceparent": f"{ids}-{flags}"})) == f"{ids}-{passed_on}"


def test_states_in_several_headers_are_one_list_and_several_parents_are_none() -> None:
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    sent = [("traceparent", parent), ("tracestate", "a=1"), ("x-other", "c=3"), ("tracestate", "b=2")]
    assert traces.written(traces.received(serving._headers(sent))) == f"{parent} a=1,b=2"
    assert traces.received(serving._headers([*sent, ("traceparent", parent)])) is None


@pytest.mark.parametrize("state", ["a=b\r\nX: y", "a=b é", " ", "a=" + "x" * 511])
def test_what_no_header_takes_is_not_restored(state: str) -> None:
    with told():
        assert traces.restored(f"{context().text} {state}") is None


@pytest.mark.parametrize("text", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-x-y-01"])
def test_what_is_no_span_is_none(text: str | None) -> None:
    with told():
        assert traces.restored(text) is None
        assert traces.received({"traceparent": text or ""}) is None


def test_the_headers_of_a_span_are_those_of_the_standard() -> None:
    with told(), traces.start(FORM, parent=context(state="vendor=a")) as span:
        assert isinstance(span, Recorded)
        here = f"00-{context().trace_id.hex()}-{span.span_id.hex()}-01"
        assert traces.headers(span) == {"traceparent": here, "tracestate": "vendor=a"}
    assert traces.headers(NOBODYS) == {}


# --- where they go


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp,console"}, ["console", "otlp"]),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, []),
    ],
)
def test_it_is_off_until_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: Sequence[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.exporters("TRACES", ("otlp", "console")) == found


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "?"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "unlimited"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "-1"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "none"),
    ],
)
async def test_what_cannot_be_used_is_left_out(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # where nobody listens in a moment
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)  # of both signals
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(traces, "FLUSH", 0.2)
    monkeypatch.setattr(readers, "FLUSH", 0.2)
    of_metrics, of_traces = "METRIC" in variable, variable.startswith(("OTEL_BSP", "OTEL_SPAN", "OTEL_ATTRIBUTE"))
    async with telemetry.configured("test", uuid4()):
        assert (traces.on(), Metric.kept) == (of_metrics, of_traces)
    assert (traces.on(), Metric.kept) == (False, False)


def test_a_limit_that_is_no_number_stops_no_process_from_starting() -> None:
    environ = {**os.environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "unlimited"}
    subprocess.run([sys.executable, "-c", "import shared.telemetry.tracer"], cwd=CHECKOUT, env=environ, check=True)


async def test_the_sdk_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with telemetry.configured("test", uuid4()):
        assert not traces.on()


def test_who_tells_it_is_named_as_the_standard_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = uuid4()
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    about = environment.resource("worker", instance).attributes
    assert (about["service.name"], about["service.instance.id"]) == ("notifyqueue-worker", str(instance))
    assert (about["deployment.environment.name"], bool(about["service.version"])) == ("staging", True)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mail")
    assert environment.resource("worker", instance).attributes["service.name"] == "mail"


async def test_a_collector_that_says_nothing_holds_up_nobody_and_what_there_is_no_room_for_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unkept() -> float:
        return metrics.DROPPED.values().get(("QUEUE_FULL",), 0)

    waits: list[str] = []
    for module in (traces, readers):
        monkeypatch.setattr(module, "FLUSH", 0.2)  # and the library's own patience is ten seconds a batch
        monkeypatch.setattr(module, "_shut_down", _noted(module._shut_down, waits))
    monkeypatch.setattr(traces, "QUEUE", 1024)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with capture_logs() as logged:
            async with telemetry.configured("test", uuid4()):
                for _ in range(1_500):  # more than it keeps
                    traces.start(FORM).end()
                await eventually(lambda: unkept() > 0)
                for _ in range(3_500):  # and more, where it is full
                    traces.start(FORM).end()
                await eventually(lambda: unkept() > 1_500)
                count = unkept()
    assert 5_000 - 1024 - 512 <= count <= 5_000 - 1024, "but for those that the collector is just being told of"
    said = [line["count"] for line in logged if line["event"] == "traces.dropped"]
    assert sum(said) == 5_000, "with what still waited, and what was on its way"
    assert not [record for record in caplog.records if "Queue full" in record.message], "none for each that is dropped"
    assert waits == ["begun", "begun", "ended", "ended"], "for spans and metrics at once: one bound, not two"
    assert not traces.on()
    assert traces.start(FORM) is NOBODYS


async def test_a_collector_that_says_nothing_keeps_no_span_from_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[ReadableSpan] = []

    def export(_: ConsoleSpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        printed.extend(spans)
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(ConsoleSpanExporter, "export", export)
    monkeypatch.setattr(traces, "FLUSH", 1.0)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with capture_logs() as logged:
            async with telemetry.configured("test", uuid4()):
                traces.start(FORM).end()
    assert [span.name for span in printed] == [FORM.name]
    assert [line["count"] for line in logged if line["event"] == "traces.dropped"] == [1], "of the collector"


async def test_a_size_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "")
    queue = traces._queue("console", ABOUT)
    assert queue
    queue.shutdown()  # type: ignore[no-untyped-call]
    assert queue._batch_processor._max_queue_size == traces.QUEUE


async def test_what_nobody_waits_for_any_more_is_told_all_the_same() -> None:
    async def work() -> None:
        with traces.start(FORM):
            await asyncio.Event().wait()

    with told() as found:
        coroutine = work()
        copy_context().run(coroutine.send, None)
        coroutine.close()  # outside of its context, as when it is finalised
    assert [(span.failed, span.facts["error.type"]) for span in found.spans] == [(True, "GeneratorExit")]


async def test_what_ends_last_is_told_before_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def request(_: otlp.Whose, entries: Sequence[bytes]) -> bytes:
        asked.extend(entries)
        return b""

    with socket.create_server(("127.0.0.1", 0)) as server:  # where nobody listens in a moment
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setattr(otlp, "request", request)
    monkeypatch.setattr(traces, "FLUSH", 0.2)
    with capture_logs() as logged:
        async with telemetry.configured("test", uuid4()):
            monkeypatch.setattr(Metric, "kept", True)
            for number in (1, 2**63, 3):  # the second has no form on the wire, and takes no other with it
                traces.start(FORM, facts={"notifyqueue.attempt": number}).end()
    assert len(asked) == 2
    assert metrics.DROPPED.values()["UNENCODABLE",] == 1
    assert sum(line["count"] for line in logged if line["event"] == "traces.dropped") == 3, "for nobody listened"


async def test_what_a_caller_calls_a_trace_makes_no_line_of_the_library(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in traces.WARN_EACH_TIME:
        caplog.set_level(logging.WARNING, logger)  # what others have set
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    many = ",".join(f"k{number}=v" for number in range(33))
    async with telemetry.configured("test", uuid4()):
        for state in ("no state", "A=b", "a=b,a=c", many):
            assert traces.written(traces.received({"traceparent": parent, "tracestate": state})) == parent
        assert traces.received({"traceparent": parent * 20}) is None
    # An exporter of a test before this one may still say that it is gone.
    assert not [record for record in caplog.records if not record.name.startswith("opentelemetry.exporter")]


@pytest.mark.parametrize("then", ["refuses", "is silent"])
async def test_what_a_collector_refuses_is_counted_and_said_once(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    taken: list[int] = []

    async def export(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        if not taken:
            (resource,) = ExportTraceServiceRequest.FromString(request).resource_spans
            taken.append(len(resource.scope_spans[0].spans))
            return b""
        if then == "is silent":
            await asyncio.Event().wait()
        raise await context.abort(grpc.StatusCode.UNIMPLEMENTED)

    server = grpc.aio.server()
    service, _, method = otlp.EXPORT[1:].partition("/")
    handlers: dict[str, Any] = {method: grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    )
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    if then == "is silent":
        monkeypatch.setattr(traces, "FLUSH", 0.2)
    await server.start()
    with capture_logs() as logged:
        async with telemetry.configured("test", uuid4()):
            for _ in range(5):
                traces.start(FORM).end()
            await eventually(lambda: taken == [2])
    await server.stop(0)
    assert [line["count"] for line in logged if line["event"] == "traces.dropped"] == [5 - 2]


def _noted(shut_down: Callable[..., Awaitable[None]], waits: list[str]) -> Callable[..., Awaitable[None]]:
    async def noting(*arguments: Any) -> None:
        waits.append("begun")
        await shut_down(*arguments)
        waits.append("ended")

    return noting
