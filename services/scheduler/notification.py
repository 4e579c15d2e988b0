"""A notification as this service knows it: what was asked for, and what became of it. Never its content."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """What is asked for where a request names a template instead of saying what is said."""

    name: str
    version: int | None
    """None: the newest, when it is accepted."""
    locale: str | None
    variables: str = field(repr=False)
    """A JSON object, in the one text that equal ones have."""


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request in canonical form. Equal ones have equal fingerprints."""

    tenant: str
    idempotency_key: str = field(repr=False)
    channel: str
    address: str = field(repr=False)
    """Of a national telephone number the digits, until `accept` knows the tenant's region; of a subscriber nothing,
    until it has read him."""
    content: Mapping[str, object] = field(repr=False)
    """Nothing, where `template` says what it is rendered from."""
    priority: int
    due: datetime | timedelta | None
    """At a time, after a delay, or now."""
    expiry: datetime | timedelta | None
    """At a time, so long after it is due, or never."""
    at_most_once: bool
    category: str
    reference: str | None
    labels: Mapping[str, str] = field(repr=False)
    template: TemplateUse | None = None
    subscriber: str | None = None
    person: UUID | None = None
    """The subscriber's id, once he was read: another one may bear the name later."""
    pseudonym: str | None = None
    """What stands for the address, once that is known."""

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant, self.idempotency_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification as it is stored. Field names are those of the table."""

    id: UUID
    idempotency_key: str = field(repr=False)
    channel: str
    address: str = field(repr=False)
    """Empty where it was erased."""
    priority: int
    status: str
    failure_reason: str | None = None
    provider_code: str | None = None
    provider_message_id: str | None = None
    due_at: datetime
    next_attempt_at: datetime
    expire_at: datetime | None
    attempt_count: int = 0
    max_attempts: int
    at_most_once: bool
    category: str
    reference: str | None
    labels: Mapping[str, str] = field(repr=False)
    template: str | None = None
    template_version: int | None = None
    subscriber: str | None = None
    redrive_count: int = 0
    revision: int = 1
    created_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Something rare that happened to a notification. Field names are those of the table."""

    kind: str
    happened_at: datetime
    attempt: int
    worker_id: UUID | None
    provider_code: str | None
    retry_delay: timedelta | None
    actor: str
    note: str
