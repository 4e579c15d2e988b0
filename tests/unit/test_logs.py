"""What stands in a log line, and what never does."""

import ast
import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import asyncpg
import pytest
import structlog

from shared import admin, logs
from shared.pseudonym import pseudonym
from shared.telemetry.spans import Unsampled

SECRET = "hunter2"


class Lines:
    """What a process has written that logs as ours do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._stream = io.StringIO()

    def configure(self, level: str) -> None:
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", self._stream)
            logs.configure("test", level)

    def text(self) -> str:
        return self._stream.getvalue()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def one(self) -> dict[str, Any]:
        (line,) = self.read()
        return line


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """The loggers of modules must not be used in these tests: they would keep the configuration."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    lines = Lines(monkeypatch)
    lines.configure("DEBUG")
    yield lines
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def ours() -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger


def fail(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error as it is when it has been raised."""
    try:
        raise error from cause
    except type(error) as raised:
        return raised


def query_error() -> asyncpg.PostgresError:
    """As the server reports a row that it refuses, with the row."""
    return asyncpg.PostgresError.new(
        {
            "C": "23505",
            "M": f'duplicate key value violates unique constraint "{SECRET}"',
            "D": f"Key (address)=({SECRET}) already exists.",
            "n": "notifications_idempotency_key",
        }
    )


def test_a_line_is_one_json_object_that_says_when_who_and_what(lines: Lines) -> None:
    ours().info("job.sent", attempt=2)
    line = lines.one()
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "job.sent", "attempt": 2, "level": "info", "service": "test"}


def test_each_event_is_a_line_whatever_is_in_it(lines: Lines) -> None:
    ours().info("first\nsecond", note="a\r\nb\u2028c")
    ours().info("third")
    assert [line["event"] for line in lines.read()] == ["first\nsecond", "third"]


def test_what_is_bound_to_the_context_is_in_every_line(lines: Lines) -> None:
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        ours().info("one")
    ours().info("two")
    assert [line.get("request_id") for line in lines.read()] == ["r1", None]


def test_what_is_below_the_level_is_not_written(lines: Lines) -> None:
    lines.configure("WARNING")
    ours().info("too low")
    ours().warning("high enough")
    assert lines.one()["event"] == "high enough"


def test_an_exception_is_its_class_and_its_place(lines: Lines) -> None:
    ours().error("failed", exc_info=fail(ValueError(SECRET)))
    line = lines.one()
    assert line["error"] == "ValueError"
    assert line["at"].startswith("tests/unit/test_logs.py:")


def test_the_class_of_an_exception_says_where_it_comes_from(lines: Lines) -> None:
    ours().error("failed", exc_info=fail(query_error()))
    assert lines.one()["error"] == "asyncpg.exceptions.UniqueViolationError"


def test_the_exception_that_is_being_handled_can_be_meant(lines: Lines) -> None:
    try:
        raise LookupError(SECRET)
    except LookupError:
        ours().error("failed", exc_info=True)
    assert lines.one()["error"] == "LookupError"


def test_the_cause_of_an_exception_is_named(lines: Lines) -> None:
    ours().error("failed", exc_info=fail(RuntimeError(), ConnectionResetError(SECRET)))
    assert lines.one()["cause"] == "ConnectionResetError"


@pytest.mark.parametrize("error", [query_error(), fail(RuntimeError(), query_error())])
def test_what_the_database_says_is_its_code_and_its_constraint(lines: Lines, error: BaseException) -> None:
    ours().error("failed", exc_info=error)
    line = lines.one()
    assert line["sqlstate"] == "23505"
    assert line["constraint"] == "notifications_idempotency_key"


def deep(depth: int) -> NoReturn:
    if depth:
        deep(depth - 1)
    raise ValueError(SECRET)


def test_the_place_is_short_however_deep_it_is(lines: Lines) -> None:
    with pytest.raises(ValueError, match=SECRET) as caught:
        deep(100)
    ours().error("failed", exc_info=caught.value)
    places = lines.one()["at"].split(" < ")
    assert len(places) == 6
    assert len(set(places[1:])) == 1, "innermost first"


def test_the_place_shows_no_path_of_the_machine(lines: Lines) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(SECRET)
    ours().error("failed", exc_info=caught.value)
    places = lines.one()["at"]
    assert "decoder.py:" in places
    assert "tests/unit/test_logs.py:" in places
    assert "/lib" not in places


EXCEPTIONS = [
    fail(ValueError(SECRET)),
    fail(RuntimeError(), ValueError(SECRET)),
    fail(query_error()),
    fail(UnicodeEncodeError("ascii", SECRET, 0, 1, SECRET)),
    fail(OSError(2, SECRET, SECRET)),
    fail(ExceptionGroup(SECRET, [ValueError(SECRET)])),
    fail(KeyError(SECRET)),
    fail(type("Noted", (Exception,), {"__str__": lambda _: SECRET, "__repr__": lambda _: SECRET})()),
]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_the_words_of_an_exception_never_reach_a_line(lines: Lines, error: BaseException) -> None:
    error.add_note(SECRET)
    ours().error("failed", exc_info=error)
    logging.getLogger("library").error("failed", exc_info=error)
    text = lines.text()
    assert text.count("\n") == 2
    assert SECRET not in text


def test_neither_what_it_was_raised_while_handling(lines: Lines) -> None:
    try:
        try:
            raise ValueError(SECRET)
        except ValueError:
            raise RuntimeError(SECRET)  # noqa: B904
    except RuntimeError as error:
        ours().error("failed", exc_info=error)
    text = lines.text()
    assert SECRET not in text
    assert json.loads(text)["cause"] == "ValueError"


def test_a_library_is_heard_by_the_name_of_its_logger_and_nothing_else(lines: Lines) -> None:
    logging.getLogger("library.part").warning("the password is %s", SECRET, extra={"password": SECRET})
    line = lines.one()
    assert line.pop("timestamp")
    assert line.pop("line") > 0
    assert line == {"event": "library.log", "logger": "library.part", "level": "warning", "service": "test"}


def test_the_exception_that_a_library_logs_is_its_class(lines: Lines) -> None:
    try:
        raise ConnectionError(SECRET)
    except ConnectionError:
        logging.getLogger("library").exception(SECRET)
    text = lines.text()
    assert SECRET not in text
    assert json.loads(text)["error"] == "ConnectionError"


def test_what_a_library_says_below_a_warning_is_not_heard(lines: Lines) -> None:
    logging.getLogger("library").info("chatter")
    assert lines.read() == []


@pytest.mark.parametrize(
    ("number", "level"), [(30, "warning"), (35, "warning"), (40, "error"), (50, "critical"), (60, "critical")]
)
def test_a_level_of_a_librarys_own_is_the_next_lower_of_ours(lines: Lines, number: int, level: str) -> None:
    logging.getLogger("library").log(number, "words")
    assert lines.one()["level"] == level


async def test_what_asyncio_finds_at_fault_is_heard_without_its_words(lines: Lines) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": SECRET, "exception": fail(ValueError(SECRET))})
    text = lines.text()
    assert SECRET not in text
    assert json.loads(text)["logger"] == "asyncio"


# --- which fields, which events

SOURCES = [file for part in ("services", "shared", "sandbox") for file in sorted((logs.ROOT / part).rglob("*.py"))]
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
NAME = re.compile(r"[a-z_]+\.[a-z_]+")

# As the first version of all this called them, and what took the place of two.
SEED = {
    *("job.sent", "job.retry", "job.dead_letter", "job.fail", "job.released", "job.claim_lost", "job.cancelled"),
    *("job.redriven", "jobs.recovered", "jobs.redriven", "worker.drained", "webhook.failed"),
}
REPLACED = {"job.rate_limited": "job.waiting", "worker.poll_failed": "loop.failed"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """What is logged by our own code."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Attribute(value=ast.Name(id="log"), attr=level) if level in LEVELS:
                    yield f"{file.relative_to(logs.ROOT)}:{node.lineno}", node
                case ast.Name(id="write") if node.keywords:  # a level that was chosen before
                    yield f"{file.relative_to(logs.ROOT)}:{node.lineno}", node


def events(call: ast.Call) -> list[str]:
    """The names that it may log; none where they are not written down there."""
    arguments = call.args[1:] if isinstance(call.func, ast.Attribute) and call.func.attr == "log" else call.args
    match arguments:
        case [ast.Constant(value=str(name))]:
            return [name]
        case [ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other)))]:
            return [one, other]
        case _:
            return []


def test_every_event_has_a_name_that_is_written_down_and_takes_nothing_from_elsewhere() -> None:
    assert len(list(calls())) > 70
    assert [place for place, call in calls() if not events(call)] == []
    assert {name for _, call in calls() for name in events(call) if not NAME.fullmatch(name)} == set()


def test_every_field_that_is_named_where_it_is_logged_is_listed() -> None:
    named = {(place, word.arg) for place, call in calls() for word in call.keywords if word.arg}
    assert {(place, name) for place, name in named if name not in logs.FIELDS | {"exc_info"}} == set()


def test_the_events_are_called_as_they_always_were() -> None:
    logged = {name for _, call in calls() for name in events(call)}
    assert SEED - logged == set()
    assert {*REPLACED.values()} <= logged
    assert not logged & REPLACED.keys()


def test_a_field_that_is_not_listed_is_left_out_and_in_tests_is_a_fault(lines: Lines) -> None:
    ours().info("job.sent", attempt=1, address=SECRET, **{SECRET: 1})
    assert SECRET not in lines.text()
    assert lines.one()["attempt"] == 1
    with pytest.raises(logs.FieldUnlisted, match=r"^address$"):
        logs.all_listed(None, "info", {"event": "job.sent", "address": SECRET})


def test_support_finds_an_address_in_the_logs_by_what_its_owner_command_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    secret = "a secret key for tests, 32 characters"
    asked = ["fingerprint", "--tenant", "default", "--channel", "email"]
    assert admin.main([*asked, "a@example.com"]) == 1
    assert "set NOTIFYQUEUE_SECRET_KEY" in capsys.readouterr().err
    monkeypatch.setenv("NOTIFYQUEUE_SECRET_KEY", secret)
    assert admin.main([*asked, "A@Example.com"]) == 0
    said = capsys.readouterr().out
    assert said == f"{pseudonym(secret.encode(), 'default', 'EMAIL', 'a@example.com')}\n"
    (tmp_path / "key").write_text(f"{secret}\n")
    monkeypatch.setenv("NOTIFYQUEUE_SECRET_KEY_FILE", str(tmp_path / "key"))
    assert admin.main([*asked, "a@example.com"]) == 0
    assert capsys.readouterr().out == said


def test_a_line_names_the_trace_that_it_belongs_to(lines: Lines) -> None:
    with Unsampled(b"\xa1" * 16, b"\xb2" * 8, "-00"):
        ours().info("job.sent")
    ours().info("job.sent")
    within, without = lines.read()
    assert (within["trace_id"], within["span_id"]) == ("a1" * 16, "b2" * 8)
    assert "trace_id" not in without


def test_on_a_terminal_it_is_lines_for_people_with_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    before, stream = structlog.get_config(), io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        logs.configure("test", "INFO")
    ours().error("job.fail", attempt=3, address=SECRET, exc_info=fail(ValueError(SECRET)))
    structlog.configure(**before)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "job.fail" in text
    assert "attempt" in text
    assert "ValueError" in text
    assert SECRET not in text
    assert not text.startswith("{")
