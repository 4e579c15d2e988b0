"""JSON lines on standard output, or lines for people where that is a terminal. Ids and numbers only.

A field that is not in FIELDS is left out, so that nothing is logged that nobody has thought about. An exception is its
class and place, not its words: these quote what it stumbled over, addresses, SQL parameters, a provider's answer. So
no message of any exception reaches a log, whoever raised it.
"""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from shared.telemetry.spans import current

ROOT = Path(__file__).parent.parent

# Where a line comes from, and when; what was called, and by whom.
CONTEXT = ("event", "level", "timestamp", "service", "worker_id", "request_id", "method", "actor")
TRACE = ("trace_id", "span_id")
IDS = (
    *("notification_id", "lost_worker_id", "claim_token", "suppression_id", "endpoint_id", "event_id", "delivery_id"),
    "address_hash",
)
"""`address_hash` stands for an address, and nobody can undo it (shared/pseudonym.py)."""
FAULTS = ("error", "cause", "at", "sqlstate", "constraint")  # as `describe` says them
WORDS = (  # each one of few
    *("channel", "provider", "code", "reason", "source", "sweep", "loop", "logger", "setting", "missing", "status"),
    *("http_status", "error_class", "phase", "exporter"),
)
NUMBERS = (
    *("attempt", "attempts", "called", "claims", "count", "deliveries", "events", "exporters", "gates", "in_flight"),
    *("line", "port", "smtp_port", "http_port", "tries", "expected", "found", "skipped", "remaining", "redrive_count"),
    "erased",
    *("duration_ms", "delay_s", "pause_s", "seconds", "gate_opens_in_s"),
    # That retention has removed.
    *("notifications", "contents", "history", "workers", "recipient_reservations", "lane_history"),
)
SWITCHES = ("paused", "breaker_open", "delivered", "tls", "by_address")
FIELDS = frozenset((*CONTEXT, *TRACE, *IDS, *FAULTS, *WORDS, *NUMBERS, *SWITCHES))


class FieldUnlisted(Exception):
    """A field is logged that is not in FIELDS; its name, and not what it says."""


def configure(service: str, level: str = "INFO") -> None:
    """Sets up this process's logs, those of libraries included. `level` is a name of logging."""
    number = logging.getLevelNamesMapping()[level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add(service=service),
            _name_exception,
            name_span,
            only_listed,
            _renderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Library()], level=max(number, logging.WARNING), force=True)


def _renderer() -> structlog.typing.Processor:
    if sys.stdout.isatty():
        return structlog.dev.ConsoleRenderer()
    return structlog.processors.JSONRenderer()


def name_span(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The trace that a line belongs to, where there is one."""
    if span := current():
        event.update(trace_id=span.trace_id.hex(), span_id=span.span_id.hex())
    return event


def only_listed(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event.keys() - FIELDS:
        del event[name]
    return event


def all_listed(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For tests. Raises FieldUnlisted."""
    if unlisted := event.keys() - FIELDS - {"exc_info"}:
        raise FieldUnlisted(", ".join(unlisted))
    return event


def _add(**fields: str) -> structlog.typing.Processor:
    def add(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(fields)
        return event

    return add


def _name_exception(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    info = event.pop("exc_info", None)
    error = sys.exception() if info is True else info
    if isinstance(error, BaseException):
        event.update(describe(error))
    return event


def describe(error: BaseException) -> dict[str, str]:
    """What may be said of an exception: its class, its database facts and its place."""
    facts = {"error": _class_of(error), "at": _place(error)}
    cause = error.__cause__ or error.__context__
    if cause is not None:
        facts["cause"] = _class_of(cause)
    for source in (error, cause):
        for name, key in (("sqlstate", "sqlstate"), ("constraint_name", "constraint")):
            if value := getattr(source, name, None):
                facts.setdefault(key, str(value))
    return facts


def _class_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{_short(frame.filename)}:{frame.lineno}" for frame in reversed(frames[-6:]))


def _short(filename: str) -> str:
    path = Path(filename)
    with suppress(ValueError):
        return str(path.relative_to(ROOT))
    return path.name


class _Library(logging.Handler):
    """What libraries log, by name of the logger and class of the exception: their words may quote content."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        level = min(record.levelno // 10 * 10, logging.CRITICAL)  # a library may have levels that structlog lacks
        log = structlog.get_logger()
        log.log(level, "library.log", logger=record.name, line=record.lineno, **(describe(error) if error else {}))
