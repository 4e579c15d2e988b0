"""What is wrong with a request, gathered so that a caller learns all of it at once."""

from collections.abc import Callable
from datetime import datetime, timedelta

from shared.errors import RequestInvalid, Violation

MAX_SPAN = timedelta(days=365)


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
