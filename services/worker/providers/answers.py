"""What an answer over HTTP means: a table for each provider, read from the top; the first row that fits decides.

By the status first, which says how far the request came, and then by the provider's own code. Below the rows of a
provider are those of the protocol, so that a code which nobody has heard of means what its class says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

import structlog

from services.worker.providers import NUMBER, Answer, Outcome, safe_code

log = structlog.get_logger()

RATE_REST = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete status line. `body` is what the answer's JSON says; None where it is none, is cut, or is endless."""

    status: int
    body: object
    retry_after: timedelta = timedelta()

    def text(self, *path: str) -> str:
        """The text, or the number, at this place of the body; empty where there is none."""
        found = self.body
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return str(found) if isinstance(found, str | int) else ""


@dataclass(frozen=True, slots=True)
class Row:
    """`status` and `code` are patterns of fnmatch. The code of an answer without one is empty, which `*` fits too."""

    status: str
    code: str
    answer: Answer
    meaning: str
    words: str = ""
    """What the text must contain: a regular expression, in any case. Only where nothing but the words tells."""
    rest: timedelta = timedelta()
    """How long to leave the provider alone, or this notification, where the answer does not say it itself."""
    opted_out: bool = False

    def fits(self, status: str, code: str, text: str) -> bool:
        return (
            fnmatchcase(status, self.status)
            and fnmatchcase(code, self.code)
            and (not self.words or re.search(self.words, text, re.IGNORECASE) is not None)
        )


Table = Sequence[Row]

TAKEN = Row("2??", "*", Answer.ACCEPTED, "taken, where the answer has an id")

CLASSES: Table = (
    Row("3??", "*", Answer.MISCONFIGURED, "somewhere else: redirects are not followed"),
    Row("40[123457]", "*", Answer.MISCONFIGURED, "credentials, account, address of the API"),
    Row("408", "*", Answer.TRANSIENT, "it did not read the whole request"),
    Row("425", "*", Answer.TRANSIENT, "refused unread (RFC 8470)"),
    Row("429", "*", Answer.THROTTLED, "too much at once", rest=RATE_REST),
    Row("4??", "*", Answer.PERMANENT_MESSAGE, "refused"),
    Row("5??", "*", Answer.UNKNOWN, "it was read, and may have been carried out"),
    Row("*", "*", Answer.UNKNOWN, "no answer to a request"),
)


class Judge:
    """Applies a provider's table, and logs the numbers that it does not list. What is no number may be any words."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def __call__(self, table: Table, reply: Reply, code: str, *, text: str = "", message_id: str = "") -> Outcome:
        """`code` is the provider's own, `text` its words, `message_id` its id for what it took."""
        row = next(row for row in table if row.fits(str(reply.status), code, text))
        shown = safe_code(f"{reply.status}-{code}" if code else reply.status)
        if row.answer is Answer.ACCEPTED:
            # A page of somebody who sits in between can have any status, and no id.
            return Outcome(row.answer, shown, message_id) if message_id else Outcome(Answer.UNKNOWN, "answer-malformed")
        if code and row.code == "*":
            told = shown if NUMBER.fullmatch(code) else f"{reply.status}-other"
            log.warning("provider.answer_unlisted", provider=self._provider, code=told)
        return Outcome(row.answer, shown, not_before=reply.retry_after or row.rest, opted_out=row.opted_out)
