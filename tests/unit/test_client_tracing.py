"""A trace begins at the command line only where somebody asks for one."""

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
