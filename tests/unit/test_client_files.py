"""Files of notifications: every line becomes a request or says what is wrong with it, whatever its neighbours are."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given
from hypothesis import strategies as st

from notifyqueue import EmailContent, Priority, ScheduleNotificationRequest, SmsContent
from notifyqueue.cli import files
from notifyqueue.cli.files import Format, HeaderInvalid, Line

SECRET = "what-nobody-may-read"


def read(content: bytes | str, format_: Format) -> list[Line]:
    data = content.encode() if isinstance(content, str) else content
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", errors="surrogateescape", newline="")
    lines = list(files.read(text, format_))
    assert SECRET not in "".join(line.problem for line in lines)
    return lines


def problems(content: bytes | str, format_: Format) -> dict[int, str]:
    return {line.number: line.problem for line in read(content, format_) if line.request is None}


def keys(content: bytes | str, format_: Format) -> dict[int, str]:
    return {line.number: line.request.idempotency_key for line in read(content, format_) if line.request}


@given(key=st.text(min_size=1), text=st.text(), labels=st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_line_of_json_is_the_request(key: str, text: str, labels: dict[str, str]) -> None:
    request = ScheduleNotificationRequest(idempotency_key=key, sms=SmsContent(text=text), labels=labels)
    line = MessageToJson(request, indent=None, preserving_proto_field_name=True)
    (found,) = read(line, "jsonl")
    assert found.request == request
    assert found.size == len(line.encode())


def test_a_bad_line_costs_only_itself() -> None:
    good = '{"idempotency_key": "%s", "sms": {"text": "hello"}}'
    lines = [
        good % "a",
        "",
        "{",
        "[]",
        '{"idempotency_key": 7}',
        '{"idempotency_keys": "x"}',
        '{"email": {"subject": ["what-nobody-may-read"]}}',
        '{"priority": "what-nobody-may-read"}',
        '{"due_time": "what-nobody-may-read"}',
        '{"idempotency_key": "\\ud800"}',
        '{"address": "a", "subscriber": "what-nobody-may-read"}',
        "[" * 100_000,
        good % "z",
        '{"email": {"subjct": "what-nobody-may-read"}}',
    ]
    content = "\n".join(lines)
    assert keys(content, "jsonl") == {1: "a", 13: "z"}
    assert problems(content, "jsonl") == {
        3: "is no JSON",
        4: "is no JSON object",
        5: "idempotency_key: not a valid value",
        6: "idempotency_keys: no such field",
        7: "subject: not a valid value",
        8: "priority: not a valid value",
        9: "due_time: not a valid value",
        10: "idempotency_key: not a valid value",
        11: "more than one recipient",
        12: "is no JSON",
        14: "email.subjct: no such field",
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_mark_of_a_byte_order_and_other_line_ends_do_no_harm(end: str) -> None:
    lines = ['{"idempotency_key": "a"}', '{"idempotency_key": "b"}']
    assert keys("\ufeff" + end.join(lines) + end, "jsonl") == {1: "a", 2: "b"}
    assert keys("\ufeff" + end.join(["idempotency_key", "a", "b"]), "csv") == {2: "a", 3: "b"}


def test_what_is_not_utf_8_is_said_to_be_none() -> None:
    assert problems(b'{"idempotency_key": "\xff"}\n{"idempotency_key": "b"}', "jsonl") == {1: "is not UTF-8"}
    assert problems(b"idempotency_key,priority\na,\xff\nb,", "csv") == {2: "is not UTF-8"}
    for header in (b"idempotency_key,\xff", "idempotency_key\n".encode("utf-16")):
        with pytest.raises(HeaderInvalid, match="not UTF-8"):
            read(header, "csv")


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_a_line_that_is_too_long_is_passed_over_whole(format_: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    good = '{"idempotency_key": "b"}' if format_ == "jsonl" else "b"
    header = "" if format_ == "jsonl" else "idempotency_key\n"
    content = f"{header}{'x' * 1_000}\n{good}\n"
    first = 1 if format_ == "jsonl" else 2
    assert problems(content, format_) == {first: "is too long"}
    assert keys(content, format_) == {first + 1: "b"}
    assert sum(line.size for line in read(content, format_)) == len(content) - len(header)


CSV = """\
idempotency_key,address,email.subject,email.text,delay,priority,at_most_once,labels.order.id,reference,ttl
a,a@example.com,"Hello, you","two
lines",1h30m,HIGH,true,17,,0.5s
b,b@example.com,Hello,text,,priority_low,,,ref,
"""


def test_a_column_is_the_path_of_a_field_and_an_empty_cell_is_none() -> None:
    first, second = read(CSV, "csv")
    expected = ScheduleNotificationRequest(
        idempotency_key="a",
        address="a@example.com",
        email=EmailContent(subject="Hello, you", text="two\nlines"),
        priority=Priority.PRIORITY_HIGH,
        at_most_once=True,
        labels={"order.id": "17"},
    )
    expected.delay.FromSeconds(5_400)
    expected.ttl.FromMilliseconds(500)
    assert (first.number, first.request) == (2, expected)
    assert second.number == 4
    assert second.request == ScheduleNotificationRequest(
        idempotency_key="b",
        address="b@example.com",
        email=EmailContent(subject="Hello", text="text"),
        priority=Priority.PRIORITY_LOW,
        reference="ref",
    )


def test_a_bad_record_costs_only_itself() -> None:
    content = (
        "idempotency_key,priority,at_most_once,delay,due_time\n"
        "a,,,,\n"
        "b\n"
        "c,,,,,\n"
        "\n"
        "d,what-nobody-may-read,,,\n"
        "e,,maybe,,\n"
        "f,,,a while,\n"
        "g,,,,what-nobody-may-read\n"
        'h,"x"y,,,\n'
        "i,,,1s,\n"
    )
    assert keys(content, "csv") == {2: "a", 11: "i"}
    assert problems(content, "csv") == {
        3: "has 1 cells, and the header 5",
        4: "has 6 cells, and the header 5",
        6: "priority: not a valid value",
        7: "at_most_once: not a valid value",
        8: "delay: not a valid value",
        9: "due_time: not a valid value",
        10: "is no CSV: ',' expected after '\"'",
    }


def test_a_quote_that_is_never_closed_ends_at_last() -> None:
    content = "idempotency_key\n" + '"open\n' + "x\n" * 70_000 + "z\n"
    found = problems(content, "csv")
    assert found[2].startswith("is no CSV: field larger than field limit")
    assert re.search(r"; a quoted field took [\d,]+ more lines with it, up to line \d+$", found[2])
    assert list(keys(content, "csv").values())[-1] == "z"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", "idempotency_key"),
        ("address", "idempotency_key"),
        ("idempotency_key,adress", "column 2: adress"),
        ("idempotency_key,email", "column 2: email"),
        ("idempotency_key,email.subject.x", "column 2: email.subject.x"),
        ("idempotency_key,labels", "column 2: labels"),
        ("idempotency_key,labels.", "column 2: labels."),
        ("idempotency_key,delay.seconds", "column 2: delay.seconds"),
        ("idempotency_key,", "column 2: without a name"),
        ("idempotency_key;address", "semicolons: the file must be comma-separated"),
        ("idempotency_key\taddress", "tabs: the file must be comma-separated"),
        ("idempotency_key,address,address", "twice: address"),
    ],
)
def test_a_header_that_is_not_understood_stops_the_file(header: str, said: str) -> None:
    with pytest.raises(HeaderInvalid, match=said.replace(".", r"\.")):
        read(f"{header}\na,b,c\n", "csv")


def test_no_more_is_read_than_is_wanted() -> None:
    class Counting(io.StringIO):
        read_lines = 0

        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            Counting.read_lines += 1
            return super().readline(size)

    text = Counting("\n".join(json.dumps({"idempotency_key": str(number)}) for number in range(1_000)))
    lines: Iterator[Line] = files.read(text, "jsonl")
    assert [next(lines).number for _ in range(3)] == [1, 2, 3]
    assert Counting.read_lines == 3


def test_the_format_is_what_the_name_ends_with() -> None:
    found = {name: files.format_of(Path(name)) for name in ("a.CSV", "a.jsonl", "a.ndjson", "a.txt", "-")}
    assert found == {"a.CSV": "csv", "a.jsonl": "jsonl", "a.ndjson": "jsonl", "a.txt": None, "-": None}


def test_a_quote_in_the_wrong_place_says_how_many_lines_it_took() -> None:
    content = 'idempotency_key,reference\na,"open\nb,x\nc,"y"z\nd,x\n'
    assert problems(content, "csv") == {
        2: "is no CSV: ',' expected after '\"'; a quoted field took 2 more lines with it, up to line 4"
    }
    assert keys(content, "csv") == {5: "d"}
