"""A trace begins at the command line only where somebody asks for one."""

import sys

import pytest

from notifyqueue.cli import tracing


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_calls_are_traced_where_the_variables_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], asked: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("atexit.register", lambda _: None)  # nothing is told, so nothing has to be waited for
    assert bool(tracing.interceptors()) is asked


@pytest.mark.parametrize("missing", [True, False])
def test_what_cannot_be_traced_is_called_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: bool
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("atexit.register", lambda _: None)
    if missing:
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    else:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")
    assert not tracing.interceptors()
    assert capsys.readouterr().err.startswith("notifyqueue: not traced: ")
