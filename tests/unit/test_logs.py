"""What stands in a log line, and what never does."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import asyncpg
import pytest
import structlog

from shared import logs

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
