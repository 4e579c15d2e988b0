"""Fills in docs/providers.md from the tables of the worker: `python -m tools.providers_page`; `--check` compares."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from services.worker.providers import fcm_codes, mock, remote_codes, resend_codes, smtp_codes, twilio_codes
from services.worker.providers.answers import Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "providers.md"
BLOCK = re.compile(r"(?P<begin><!-- table: (?P<name>[a-z ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)

Lines = Iterable[str]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _rest(rest: timedelta) -> str:
    seconds = round(rest.total_seconds())
    if not seconds:
        return ""
    unit, count = next((unit, count) for unit, count in ((3600, "h"), (60, "min"), (1, "s")) if seconds % unit == 0)
    return f"{seconds // unit} {count}"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _http(rows: Iterable[Row]) -> Lines:
    return _table(
        ("status", "code", "words", "comes to", "rests", "what it says"),
        (
            (
                _code(row.status),
                _code(row.code),
                _code(row.words),
                f"{row.answer}, OPTED_OUT" if row.opted_out else str(row.answer),
                _rest(row.rest),
                row.meaning,
            )
            for row in rows
        ),
    )


def _smtp() -> Lines:
    return _table(
        ("after", "reply", "enhanced", "words", "comes to", "rests"),
        (
            (
                _phases(row.phases),
                _code(row.code),
                _code(row.status),
                _code(row.words),
                str(row.answer),
                _rest(row.rest),
            )
            for row in smtp_codes.TABLE
        ),
    )


def _phases(phases: frozenset[smtp_codes.Phase]) -> str:
    if phases == smtp_codes.ANY:
        return "anything"
    if phases == smtp_codes.BEFORE_DOT:
        return "anything but DOT"
    return ", ".join(phase for phase in smtp_codes.Phase if phase in phases)


def _remote() -> Lines:
    return _table(
        ("outcome", "comes to"), ((_code(name), str(answer)) for name, answer in remote_codes.ANSWERS.items())
    )


def _remote_status() -> Lines:
    rows = ((_code(row.status), _code(row.words), str(row.answer), row.meaning) for row in remote_codes.TABLE)
    return _table(("gRPC status", "words", "comes to", "what it says"), rows)


def _mock() -> Lines:
    return _table(("status", "comes to"), ((_code(pattern), str(answer)) for pattern, answer in mock.STATUSES))


TABLES: Mapping[str, Callable[[], Lines]] = {
    "smtp": _smtp,
    "resend": lambda: _http(resend_codes.TABLE),
    "resend own sender": lambda: _http(row for row in resend_codes.OWN_SENDER if row not in resend_codes.TABLE),
    "twilio": lambda: _http(twilio_codes.TABLE),
    "fcm": lambda: _http(fcm_codes.TABLE),
    "fcm token": lambda: _http(fcm_codes.TOKENS),
    "remote": _remote,
    "remote status": _remote_status,
    "mock": _mock,
}


def filled(page: str) -> str:
    """The page with its tables as they are now."""
    return BLOCK.sub(
        lambda found: "".join([found["begin"], *(f"{line}\n" for line in TABLES[found["name"]]()), found["end"]]), page
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.providers_page")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    before = PAGE.read_text("utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(filled(before), "utf-8")
        return 0
    if before == filled(before):
        return 0
    print("docs/providers.md is not what the tables say: run `python -m tools.providers_page`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
