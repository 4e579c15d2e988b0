"""What a request must be before anything is looked up: every fault is found, and named by its field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from services.scheduler import contents, templates
from services.scheduler.addresses import CANONICAL
from services.scheduler.contents import CHANNELS
from services.scheduler.faults import MAX_SPAN, Faults
from services.scheduler.notification import Request
from shared.errors import RequestInvalid, Violation
from shared.ids import uuid_of

MAX_LABELS = 16
MAX_REFERENCE = 255
MAX_SUBSCRIBER = 255
MAX_REASON = 255
NORMAL = 2

TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class Draft:
    """A request as it came, in Python's types. `recipient` and `content` name the alternative that was chosen."""

    tenant: str
    idempotency_key: str = field(repr=False)
    recipient: str | None
    address: str = field(repr=False)
    content: str | None
    parts: contents.Parts = field(repr=False)
    """The fields of the chosen content."""
    priority: int
    due: datetime | timedelta | None
    expiry: datetime | timedelta | None
    at_most_once: bool
    category: str
    reference: str
    labels: Mapping[str, str] = field(repr=False)
    template: templates.Use | None = None
    """Where that is the chosen content."""
    subscriber: str = ""


def check(draft: Draft) -> Request:
    """The request in canonical form. Raises RequestInvalid with everything that is wrong."""
    faults = Faults()
    faults.length("idempotency_key", draft.idempotency_key, 255, required=True)
    _check_said(faults, draft)
    channel = CHANNELS.get(draft.content or "", "")
    use = None
    if draft.template:
        channel, use = draft.template.channel or "", templates.used(faults, draft.template)
        if not channel:
            faults.add("template.channel", "is required")
    address = ""
    content: Mapping[str, object] = {}
    if channel and draft.recipient == "address":
        address = faults.canonical("address", draft.address, CANONICAL[channel])
    if channel and not draft.template:
        content = dict(contents.RULES[channel](faults, draft.parts))
    _check_spans(faults, draft)
    faults.length("category", draft.category, 64)
    faults.line("category", draft.category)
    faults.length("reference", draft.reference, MAX_REFERENCE)
    faults.line("reference", draft.reference)
    _check_labels(faults, draft.labels)
    faults.raise_any()
    return Request(
        tenant=draft.tenant,
        idempotency_key=draft.idempotency_key,
        channel=channel,
        address=address,
        content=content,
        priority=draft.priority or NORMAL,
        due=draft.due,
        expiry=draft.expiry,
        at_most_once=draft.at_most_once,
        category=draft.category,
        reference=draft.reference or None,
        labels=draft.labels,
        template=use,
        subscriber=draft.subscriber if draft.recipient == "subscriber" else None,
    )


def _check_said(faults: Faults, draft: Draft) -> None:
    if draft.recipient is None:
        faults.add("recipient", "is required")
    elif draft.recipient == "subscriber":
        subscriber_name(faults, "subscriber", draft.subscriber)
    if draft.content is None:
        faults.add("content", "is required")


def subscriber_name(faults: Faults, name: str, text: str, *, required: bool = True) -> None:
    faults.length(name, text, MAX_SUBSCRIBER, required=required)
    faults.line(name, text)


def _check_spans(faults: Faults, draft: Draft) -> None:
    faults.delay(draft.due)
    if isinstance(draft.expiry, timedelta) and not timedelta() < draft.expiry <= MAX_SPAN:
        faults.add("ttl", "must be more than 0 and at most 365 days")


def _check_labels(faults: Faults, labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        faults.add("labels", f"must have at most {MAX_LABELS} entries")
    if any(not 1 <= len(name) <= 64 for name in labels):
        faults.add("labels", "keys must have 1 to 64 characters")
    if any(len(value) > 255 for value in labels.values()):
        faults.add("labels", "values must have at most 255 characters")


def key_of(name: str | None, text: str) -> UUID | str:
    """Which notification: an id, or an idempotency key. Raises RequestInvalid."""
    if name is None:
        raise RequestInvalid([Violation("key", "notification_id or idempotency_key is required")])
    if name == "notification_id":
        return uuid_of(name, text)
    faults = Faults()
    faults.length(name, text, 255, required=True)
    faults.raise_any()
    return text


def short(name: str, text: str) -> str:
    """At most 255 characters. Raises RequestInvalid."""
    faults = Faults()
    faults.length(name, text, MAX_REASON)
    faults.raise_any()
    return text


def lane(channel: str | None, reason: str, *, reason_required: bool = False) -> tuple[str, str]:
    """Which lane, and why. Raises RequestInvalid."""
    faults = Faults()
    if channel is None:
        faults.add("channel", "is required")
    faults.length("reason", reason, MAX_REASON, required=reason_required)
    if reason_required:
        faults.visible("reason", reason)
    faults.raise_any()
    return channel or "", reason
