"""What people type and read: spans of time, times, names of the contract."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import typer
from google.protobuf.json_format import MessageToDict

from notifyqueue import Notification, Priority
from notifyqueue.cli.output import enum_name, plain, span, to_dict
from notifyqueue.cli.values import to_pair, to_span, to_text, to_time, to_value

DAY = 86_400


@pytest.fixture
def in_bangkok(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Bangkok")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("0s", 0),
        ("0.5s", 0.5),
        ("10m", 600),
        ("1h30m", 5_400),
        ("7d", 7 * DAY),
        (" 1d2h3m4.5s ", 93_784.5),
    ],
)
def test_a_span_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert to_span(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "1m1h", "-1s", "1.5h", "1 h", "\u0661s", "1w", "9" * 30 + "d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        to_span(text)


@pytest.mark.usefixtures("in_bangkok")
def test_a_time_without_a_zone_is_on_this_machines_clock() -> None:
    assert to_time("2027-03-01T09:00") == datetime(2027, 3, 1, 2, tzinfo=UTC)
    assert to_time("2027-03-01T09:00Z") == to_time("2027-03-01T10:00+01:00") == datetime(2027, 3, 1, 9, tzinfo=UTC)
    for text in ("", "noon", "2027-13-01", "09:00"):
        with pytest.raises(typer.BadParameter):
            to_time(text)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0s"),
        (1.25, "1.2s"),
        (59.94, "59.9s"),
        (60, "1m 0s"),
        (3_600, "1h 0m"),
        (DAY - 1, "23h 59m"),
        (DAY, "1d 0h"),
    ],
)
def test_a_span_is_read_at_a_glance(seconds: float, said: str) -> None:
    assert span(timedelta(seconds=seconds)) == said


def test_names_are_without_prefix_and_in_any_case() -> None:
    assert to_value(Notification.Status, "dead-lettered") == Notification.STATUS_DEAD_LETTERED
    assert to_value(Priority, "high") == Priority.PRIORITY_HIGH
    assert to_value(Priority, "") == 0
    with pytest.raises(typer.BadParameter, match="priority is one of LOW, NORMAL, HIGH"):
        to_value(Priority, "UNSPECIFIED")
    found = Notification(status=Notification.STATUS_SENT)
    assert enum_name(found, "status") == "SENT"


def test_a_value_of_a_newer_server_is_its_number() -> None:
    newer = Notification.FromString(b"\x38\x63")  # status 99
    assert enum_name(newer, "status") == "99"


def test_json_has_the_contracts_names_and_the_fields_that_are_not_set() -> None:
    record = to_dict(Notification(notification_id="a"))
    assert record["at_most_once"] is False
    assert record["attempt_count"] == 0
    assert "due_time" not in record
    assert record.items() >= MessageToDict(Notification(notification_id="a"), preserving_proto_field_name=True).items()


def test_pairs_and_texts() -> None:
    assert to_pair("a=b=c") == ("a", "b=c")
    for text in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            to_pair(text)
    assert to_text("hello") == "hello"
    assert to_text("@@home") == "@home"


def test_nothing_that_is_shown_commands_the_terminal() -> None:
    assert plain("a\x1b[2Jb\r\nc\x9b\u202ed") == "a [2Jb  c  d"
