"""No machine's own clock says when anything is due, leased, limited or over: where one is read at all, and for what."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIVE = ("services", "shared")

# What tells the time of day. How long something took is measured by shared.clock.tick and time.monotonic.
TELLS = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("datetime", "fromtimestamp"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("time", "ctime"),
    ("uuid", "uuid1"),
    ("uuid", "uuid7"),
}
MEASURES = {("time", "clock_gettime"), ("time", "clock_gettime_ns")}
NAMES = {"GetCurrentTime", "CLOCK_REALTIME", "uuid1", "uuid7", "utcnow"}

ALLOWED = {
    "services/worker/worker.py": "since when this process runs, for GetWorkerStatus",
    "services/dispatcher/dispatch.py": "likewise, for GetDispatcherStatus",
    "services/worker/providers/mail.py": "the Date of a mail, which says when its sender wrote it",
    "services/worker/providers/fcm_tokens.py": "when an assertion was made, which Google compares with its own time",
    "shared/telemetry/spans.py": "when a span began, for who looks at it beside those of other machines",
    "shared/telemetry/readers.py": "since when values are counted, and when they were looked at, for the same",
}


def tells(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in TELLS or name in NAMES:
                yield f"{owner}.{name}"
            case ast.Attribute(value=ast.Attribute(attr=owner), attr=name) if (owner, name) in TELLS:
                yield f"{owner}.{name}"
            case ast.Attribute(attr=name) if name in NAMES:
                yield name
            case ast.ImportFrom(module=("time" | "uuid") as module, names=names):
                yield from (f"{module}.{each.name}" for each in names if (module, each.name) in TELLS | MEASURES)


def read_clocks() -> dict[str, list[str]]:
    found = {
        str(path.relative_to(ROOT)): sorted(set(tells(ast.parse(path.read_text()))))
        for folder in LIVE
        for path in (ROOT / folder).rglob("*.py")
    }
    return {path: names for path, names in found.items() if names}


def test_a_local_clock_is_read_at_named_places_and_decides_nothing() -> None:
    assert read_clocks().keys() == ALLOWED.keys()
    assert {name for names in read_clocks().values() for name in names} == {"datetime.now", "time.time_ns"}


def test_any_way_to_ask_the_time_of_day_is_found() -> None:
    asking = (
        "datetime.now(UTC)",
        "datetime.datetime.now(UTC)",
        "time.time()",
        "Timestamp().GetCurrentTime()",
        "time.clock_gettime(time.CLOCK_REALTIME)",
        "from time import time",
        "uuid.uuid1()",
    )
    assert [source for source in asking if not list(tells(ast.parse(source)))] == []
    assert not list(tells(ast.parse("time.monotonic(); tick(); time.clock_gettime(time.CLOCK_BOOTTIME)")))
