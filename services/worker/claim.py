"""What a worker holds: a notification, for as long as its lease runs, by a token that fences what it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from shared import suppression
from shared.clock import tick

SUSPECT_AFTER = 2
"""Expired claims from which a notification is suspected of crashing its workers (the literal in the claim indexes)."""


SUBSCRIBER = "subscriber "
"""Before the name, in a limit key; no address has a space."""


class Recipient(NamedTuple):
    """Who is sent to on a channel, as far as a tenant limits what each gets."""

    tenant_id: str
    limit_key: str
    """The channel, and the address or the subscriber."""

    @property
    def holder(self) -> tuple[str, str]:
        """Whose slots they are: a subscriber's of all channels are his. As the function slot_keys of the database."""
        _, _, who = self.limit_key.partition(" ")
        return self.tenant_id, who if who.startswith(SUBSCRIBER) else self.limit_key


@dataclass(slots=True, unsafe_hash=True)  # nothing changes one, but to make a frozen one takes five times as long
class Held:
    """The facts of a claim that decide what becomes of it."""

    notification_id: UUID
    claim_token: UUID
    channel: str
    number: int
    """Which attempt this is, from 1."""
    max_attempts: int
    at_most_once: bool
    reconciled: bool
    """The one attempt beyond the cap has been granted."""
    maybe_delivered: bool
    """An earlier attempt ended without an answer."""
    time_left: timedelta | None
    """Until it expires."""

    @property
    def overdue(self) -> bool:
        """Whether its time is over."""
        return self.time_left is not None and self.time_left <= timedelta()


@dataclass(slots=True, unsafe_hash=True)
class Claim(Held):
    """A claim of this worker, with what it delivers."""

    address: str = field(repr=False)
    content: Mapping[str, object] | None = field(repr=False)
    """None where it was erased."""
    expiries: int
    asked_at: float
    """When it was asked for, as `shared.clock.tick` counts."""
    tenant_id: str
    limited: bool
    """Its tenant limits what each recipient gets."""
    suppressed_by: Sequence[str] = ()
    """The sources of what suppresses its address for its category."""
    subscriber: str | None = None
    late_by: float = 0.0
    """For how many seconds it had been due when it was claimed; if it was accepted after it was due, accepted."""
    due_at_once: bool = False
    """It was due when it was accepted, and is claimed for that."""
    granted: bool = False
    """It was called up from a gate, where a slot is kept for it."""
    trace_context: str | None = None
    """The span that asked for it."""
    last_trace_context: str | None = None
    """That of its redrive, if it was traced."""
    recent: bool = True
    """It was accepted at most a quarter of an hour ago."""

    @property
    def suspect(self) -> bool:
        return self.expiries >= SUSPECT_AFTER

    @property
    def recipient(self) -> Recipient:
        who = suppression.form(self.channel, self.address) if self.subscriber is None else SUBSCRIBER + self.subscriber
        return Recipient(self.tenant_id, f"{self.channel} {who}")

    def aged(self) -> "Claim":
        """The claim as it is now: the time that is left runs on from when it was asked for."""
        if self.time_left is None:
            return self
        return replace(self, time_left=self.time_left - timedelta(seconds=tick() - self.asked_at), asked_at=tick())


@dataclass(slots=True, unsafe_hash=True)
class ExpiredClaim(Held):
    """A claim whose worker let its lease pass."""

    worker_id: UUID
    started: bool
    """It passed the start fence, so a call may have been made."""
