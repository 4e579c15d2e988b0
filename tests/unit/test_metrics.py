"""What is kept of what is measured, and as what."""

import re
from collections.abc import Iterator, Mapping
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from services.scheduler import gauges
from services.scheduler.gauges import Gauges
from services.worker import measured
from services.worker.measured import shown_code, told_code
from services.worker.outcome import unstarted
from services.worker.providers import fcm_codes, resend_codes, twilio_codes
from services.worker.providers.answers import Row
from shared.clock import tick
from shared.database import DatabaseBug
from shared.doctor import CHECKS, UNMADE, Bounds, Finding
from shared.errors import DatabaseUnavailable
from shared.telemetry import metrics as m
from shared.telemetry.metrics import MOST, OTHER
from tests.telemetry import Labels, Reader, reading
from tests.unit.test_outcome import held
from tools import metrics_page


@pytest.fixture
def reader() -> Iterator[Reader]:
    with reading() as reader:
        m.DRAINING.show({(): 0})  # every process has one that always says something
        yield reader


def test_nothing_is_kept_while_nobody_listens() -> None:
    m.OUTCOMES.add(1, "EMAIL", "smtp", "ACCEPTED", "250")
    m.RPC_TIME.record(0.1, "a/B", "OK", "")
    assert (m.OUTCOMES.values(), m.RPC_TIME.values()) == ({}, {})


def test_whoever_begins_to_listen_counts_from_zero() -> None:
    with reading():
        m.LOST.add(1, "EMAIL")
    with reading() as reader:
        m.DRAINING.show({(): 0})
        assert reader.value(m.LOST, "EMAIL") == 0


def test_a_value_is_in_the_bucket_whose_bound_it_does_not_exceed(reader: Reader) -> None:
    for value in (0.005, 0.006, 11.0):
        m.RPC_TIME.record(value, "a/B", "OK", "")
    (cell,) = m.RPC_TIME.values().values()
    assert [cell[0], cell[1], cell[-2]] == [1, 1, 1]
    assert cell[-1] == pytest.approx(11.011)
    assert reader.value(m.RPC_TIME, "a/B", "OK", "") == 3


def test_attributes_have_a_bound_whatever_is_told(reader: Reader) -> None:
    for number in range(MOST + 10):
        m.OUTCOMES.add(1, "EMAIL", "smtp", "UNKNOWN", str(number))
        m.PROVIDER_TIME.record(1, "smtp", str(number))
    assert len(m.OUTCOMES.values()) == len(m.PROVIDER_TIME.values()) == MOST + 1
    assert reader.value(m.OUTCOMES, *[OTHER] * 4) == reader.value(m.PROVIDER_TIME, OTHER, OTHER) == 10


def test_what_is_no_more_is_not_told_any_more(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    m.BREAKER.show({("EMAIL",): 1, ("SMS",): 0})
    assert len(reader.read(m.BREAKER)) == 2
    m.BREAKER.show({("SMS",): 0})
    assert len(reader.read(m.BREAKER)) == 1
    now = tick()
    monkeypatch.setattr(m, "tick", lambda: now + m.STALE + 1)
    assert len(reader.read(m.BREAKER)) == 0


async def test_what_the_doctor_found_is_told_until_it_looks_again(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> list[Finding]:
        return []

    monkeypatch.setattr(gauges, "look_all", nothing)
    interval = await Gauges(AsyncMock(), AsyncMock(), Bounds()).look()
    now = tick()
    monkeypatch.setattr(m, "tick", lambda: now + 2 * interval)  # one look that failed between
    assert reader.read(m.FINDINGS)


async def test_a_check_that_fails_is_a_finding_and_a_database_that_is_away_is_none(reader: Reader) -> None:
    def found(unmade: float) -> Mapping[Labels, float]:
        return {
            frozenset({("finding", check.name), ("severity", str(check.severity))}): unmade * (check is UNMADE)
            for check in (*CHECKS, UNMADE)
        }

    executor = AsyncMock()
    looking = Gauges(AsyncMock(), executor, Bounds())
    with capture_logs() as logged:
        for faults, known in ((1, 1), (len(CHECKS), 1), (len(CHECKS), 1), (0, 0), (len(CHECKS), 0)):
            executor.fetch.side_effect = [*[DatabaseUnavailable()] * faults, *[[]] * (len(CHECKS) - faults)]
            assert await looking.look() == gauges.DOCTOR_INTERVAL
            assert reader.read(m.FINDINGS) == found(known), "as it was, where nothing is known"
        executor.fetch.side_effect = DatabaseBug()
        await looking.look()
        assert reader.read(m.FINDINGS) == found(len(CHECKS)), "it answers"
    assert [line["event"] for line in logged] == ["findings.unread"] * 2, "once for each time that it is away"


def test_what_goes_back_without_an_attempt_is_counted(reader: Reader) -> None:
    measured.recorded("EMAIL", unstarted(held()))
    assert reader.value(m.RELEASED, "EMAIL") == 1


LISTED = {"twilio": "400-21211", "resend": "401-missing_api_key", "fcm": "404-UNREGISTERED", "smtp": "550-5.1.1"}


@pytest.mark.parametrize(
    ("provider", "code", "shown"),
    [
        *((provider, code, code) for provider, code in LISTED.items()),
        *((provider, "400-invented", OTHER) for provider in LISTED),
        ("smtp", "550", "550"),
        ("smtp", "dot-timeout", "dot-timeout"),
        ("fcm", "token-401-invented", OTHER),
        ("fcm", "token-401", "token-401"),
        ("remote", "rpc.UNAVAILABLE", "rpc.UNAVAILABLE"),
        ("remote", "rpc.INVENTED", OTHER),
        ("remote", "someones-own", OTHER),
        ("remote", "deadline", "deadline"),
        ("mock", None, "none"),
    ],
)
def test_a_code_is_shown_where_its_table_lists_it(provider: str, code: str | None, shown: str) -> None:
    assert shown_code(provider, code) == shown


@pytest.mark.parametrize(
    ("provider", "code", "told"),
    [
        ("smtp", "550-9.9.9", "550-9.9.9"),
        ("twilio", "400-29999", "400-29999"),
        ("twilio", "400-447700900123", "400-other"),
        ("resend", "400-anna_example.com", "400-other"),
        ("resend", "401-missing_api_key", "401-missing_api_key"),
        ("remote", "anna_example.com", OTHER),
        ("remote", "deadline", "deadline"),
        ("remote", "EMAIL_REMOTE_ADDRESS-missing", "EMAIL_REMOTE_ADDRESS-missing"),  # its lane was never served
        ("remote", "REMOTE_TOKEN_FILE-missing", "REMOTE_TOKEN_FILE-missing"),
        ("remote", "anna_example.com-missing", OTHER),
        ("smtp", None, None),
    ],
)
def test_a_line_and_a_span_say_no_code_that_a_provider_makes_up(
    provider: str, code: str | None, told: str | None
) -> None:
    assert told_code(provider, code) == told


@pytest.mark.parametrize(
    ("provider", "table"),
    [("twilio", twilio_codes.TABLE), ("resend", resend_codes.TABLE), ("fcm", fcm_codes.TABLE)],
)
def test_every_code_that_a_table_names_is_shown(provider: str, table: tuple[Row, ...]) -> None:
    named = [row.code for row in table if row.code.replace("_", "").isalnum()]
    assert named
    assert {shown_code(provider, f"400-{code}") for code in named} == {f"400-{code}" for code in named}


def test_the_page_says_what_is_declared() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page()
    assert metrics_page.RULES.read_text() == metrics_page.rules()


def test_every_name_is_used_once_and_every_alert_is_about_metrics_and_attributes_that_there_are() -> None:
    names = [metric.name for metric in m.METRICS]
    assert len(set(names)) == len(names)
    labels = {
        metrics_page.prometheus_name(metric): {name.replace(".", "_") for name in metric.attributes}
        for metric in m.METRICS
    }
    for alert in metrics_page.ALERTS:
        for text in (alert.expression, *re.findall("`[^`]+`", alert.look)):
            named = metrics_page.named_in(text)
            assert named <= {*labels}, alert.name
            assert metrics_page.labels_in(text) <= set().union(*(labels[name] for name in named)), alert.name
        assert metrics_page.named_in(alert.expression), alert.name
