"""What is wrong with a request, gathered so that a caller learns all of it at once."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from shared.errors import RequestInvalid, Violation

MAX_SPAN = timedelta(days=365)

# What Python's str.splitlines, and so its email package, breaks lines at, and what no header may have (RFC 5322, 2.2).
CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class Faults:
    """Each is named by its field, and tells no value."""

    def __init__(self) -> None:
        self.found: list[Violation] = []

    def add(self, name: str, problem: str) -> None:
        self.found.append(Violation(name, problem))

    def length(self, name: str, text: str, longest: int, *, required: bool = False) -> None:
        if required and not text:
            self.add(name, "is required")
        elif len(text) > longest:
            self.add(name, f"must have at most {longest} characters")

    def visible(self, name: str, text: str) -> None:
        """What is required, and is not there for anybody who looks."""
        if text and not is_visible(text):
            self.add(name, "must not be blank")

    def line(self, name: str, text: str) -> None:
        if CONTROLS.search(text):
            self.add(name, "must be one line without control characters")

    def canonical(self, name: str, text: str, form: Callable[[str], str]) -> str:
        try:
            return form(text)
        except ValueError as error:
            self.add(name, str(error))
            return text

    def delay(self, due: datetime | timedelta | None) -> None:
        """A time is judged later, by the database's clock."""
        if isinstance(due, timedelta) and not timedelta() <= due <= MAX_SPAN:
            self.add("delay", "must be from 0 to 365 days")

    def raise_any(self) -> None:
        """Raises RequestInvalid."""
        if self.found:
            raise RequestInvalid(self.found)


def is_visible(text: str) -> bool:
    """Whether there is anything but blanks, and characters without a width, in it."""
    return any(character.isprintable() and not character.isspace() for character in set(text))
