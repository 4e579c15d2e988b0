"""What people type, as values: spans of time, times, pairs, texts that may be in a file, names of the contract."""

import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import typer

SPAN = re.compile(r"(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def to_span(text: str | timedelta) -> timedelta:
    """As 90s, 10m, 1h30m, 7d. Raises BadParameter."""
    if isinstance(text, timedelta):  # typer also hands over defaults
        return text
    if not (found := SPAN.fullmatch(text.strip())):
        raise typer.BadParameter("a span of time is written as 90s, 10m, 1h30m or 7d")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise typer.BadParameter("that is longer than any time") from None


def to_time(text: str) -> datetime:
    """ISO 8601; without a zone it is this machine's. Raises BadParameter."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter("a time is written as 2027-03-01T09:00 or 2027-03-01T09:00+02:00") from None


def to_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter("is written as name=value")
    return name, value


def to_text(text: str) -> str:
    """The text itself, or what is in the file that is named after an @ (@- is stdin, @@ begins a text with one)."""
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    try:
        return (sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()).decode()
    except OSError as error:
        raise typer.BadParameter(f"{text[1:]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{text[1:]}: is not UTF-8") from None


def to_value(kind: Any, text: str) -> Any:
    """The number of an enum's value by its name, without prefix and in any case; 0 for none. Raises BadParameter."""
    if not text:
        return 0
    prefix = kind.Name(0).removesuffix("UNSPECIFIED")
    name = text.strip().upper().replace("-", "_")
    values = {full.removeprefix(prefix): number for full, number in kind.items() if number}
    if name not in values:
        raise typer.BadParameter(f"{kind.DESCRIPTOR.name.lower()} is one of {', '.join(values)}")
    return values[name]
