"""What a lane needs of a provider: one call, and an answer that is a value whatever the provider's words were."""

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

NUMBER = re.compile(r"\d{1,5}|\d\.\d{1,3}\.\d{1,3}")  # of a code; too short to be anybody's
UNSAFE = re.compile(r"[^A-Za-z0-9._:-]+")


class Answer(StrEnum):
    """What a provider's answer means."""

    ACCEPTED = "ACCEPTED"
    PERMANENT_MESSAGE = "PERMANENT_MESSAGE"
    """This content will never be taken."""
    PERMANENT_ADDRESS = "PERMANENT_ADDRESS"
    """This address takes nothing."""
    MISCONFIGURED = "MISCONFIGURED"
    """Our credentials, sender or settings; no other message would fare better."""
    THROTTLED = "THROTTLED"
    """Refused unread, because too much is coming."""
    TRANSIENT = "TRANSIENT"
    """Not delivered; a later attempt may be."""
    UNKNOWN = "UNKNOWN"
    """It may have been delivered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended."""

    answer: Answer
    code: str | None = None
    """The provider's own code, as `safe_code` makes it."""
    provider_message_id: str | None = None
    not_before: timedelta = timedelta()
    """How long the provider asked to be left alone."""
    opted_out: bool = False
    """Of PERMANENT_ADDRESS: its owner has told the provider that nothing more is to come."""


@dataclass(frozen=True, slots=True)
class Message:
    """What to deliver. `content` has the fields of the channel's content message."""

    delivery_key: UUID
    attempt: int
    address: str
    content: Mapping[str, object] = field(repr=False)


class Handover:
    """Marks the moment from which a provider may have the message."""

    begun = False

    def begin(self) -> None:
        """To be called right before the byte that completes the message is sent."""
        self.begun = True


class Provider(AbstractAsyncContextManager["Provider"], Protocol):
    """One way to deliver on a channel. Entered once per process; `deliver` runs many times at once."""

    name: str

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        """Makes one request and never repeats it. What it raises counts as TRANSIENT before the handover began and as
        UNKNOWN after; being cancelled likewise. What is wrong with the message itself is PERMANENT_MESSAGE.
        """
        ...


def safe_code(code: object) -> str:
    """A provider's code in at most 64 characters that cannot carry an address or a sentence."""
    return UNSAFE.sub("_", str(code))[:64] or "none"
