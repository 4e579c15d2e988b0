"""What a request must be before anything is looked up: every fault is found, and named by its field."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from services.scheduler.addresses import canonical_email, canonical_mailbox
from services.scheduler.notification import Request
from shared.errors import RequestInvalid, Violation
from shared.ids import uuid_of

MAX_CONTENT = 64 * 1024
MAX_LINE = 998  # RFC 5322, 2.1.1
MAX_HEADERS = 20
MAX_LABELS = 16
MAX_REFERENCE = 255
MAX_SPAN = timedelta(days=365)
NORMAL = 2

HEADER = re.compile(r"[Xx]-[A-Za-z0-9-]{1,70}")
HEADERS = frozenset(
    {"list-unsubscribe", "list-unsubscribe-post", "list-id", "in-reply-to", "references", "auto-submitted"}
)
# What Python's str.splitlines, and so its email package, breaks lines at, and what no header may have (RFC 5322, 2.2).
CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
SERVED = {"recipient": "address", "content": "email"}
MAILBOXES = {"sender": canonical_mailbox, "reply_to": canonical_email}


@dataclass(frozen=True, slots=True)
class Draft:
    """A request as it came, in Python's types. `recipient` and `content` name the alternative that was chosen."""

    tenant: str
    idempotency_key: str = field(repr=False)
    recipient: str | None
    address: str = field(repr=False)
    content: str | None
    email: Mapping[str, object] = field(repr=False)
    priority: int
    due: datetime | timedelta | None
    expiry: datetime | timedelta | None
    at_most_once: bool
    category: str
    reference: str
    labels: Mapping[str, str] = field(repr=False)


class Faults:
    """Gathers what is wrong, so that a caller learns all of it at once."""

    def __init__(self) -> None:
        self.found: list[Violation] = []

    def add(self, name: str, problem: str) -> None:
        self.found.append(Violation(name, problem))

    def length(self, name: str, text: str, longest: int, *, required: bool = False) -> None:
        if required and not text:
            self.add(name, "is required")
        elif len(text) > longest:
            self.add(name, f"must have at most {longest} characters")

    def line(self, name: str, text: str, *, required: bool = False) -> bool:
        """What stands in a mail's header. Answers whether it may."""
        before = len(self.found)
        self.length(name, text, MAX_LINE, required=required)
        if CONTROLS.search(text):
            self.add(name, "must be one line without control characters")
        return len(self.found) == before

    def canonical(self, name: str, text: str, form: Callable[[str], str]) -> str:
        try:
            return form(text)
        except ValueError as error:
            self.add(name, str(error))
            return text

    def raise_any(self) -> None:
        if self.found:
            raise RequestInvalid(self.found)


def check(draft: Draft) -> Request:
    """The request in canonical form. Raises RequestInvalid with everything that is wrong."""
    faults = Faults()
    faults.length("idempotency_key", draft.idempotency_key, 255, required=True)
    for group, served in SERVED.items():
        _check_served(faults, group, getattr(draft, group), served)
    address = draft.address
    if draft.recipient == "address":
        address = faults.canonical("address", draft.address, canonical_email)
    content = dict(_email(faults, draft.email)) if draft.content == "email" else {}
    _check_spans(faults, draft)
    faults.length("category", draft.category, 64)
    faults.length("reference", draft.reference, MAX_REFERENCE)
    _check_labels(faults, draft.labels)
    faults.raise_any()
    return Request(
        tenant=draft.tenant,
        idempotency_key=draft.idempotency_key,
        channel="EMAIL",
        address=address,
        content=content,
        priority=draft.priority or NORMAL,
        due=draft.due,
        expiry=draft.expiry,
        at_most_once=draft.at_most_once,
        category=draft.category,
        reference=draft.reference or None,
        labels=draft.labels,
    )


def _check_served(faults: Faults, group: str, chosen: str | None, served: str) -> None:
    if chosen is None:
        faults.add(group, "is required")
    elif chosen != served:
        faults.add(chosen, f"is not served by this version; use {served}")


def _check_spans(faults: Faults, draft: Draft) -> None:
    if isinstance(draft.due, timedelta) and not timedelta() <= draft.due <= MAX_SPAN:
        faults.add("delay", "must be from 0 to 365 days")
    if isinstance(draft.expiry, timedelta) and not timedelta() < draft.expiry <= MAX_SPAN:
        faults.add("ttl", "must be more than 0 and at most 365 days")


def _check_labels(faults: Faults, labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        faults.add("labels", f"must have at most {MAX_LABELS} entries")
    if any(not 1 <= len(name) <= 64 for name in labels):
        faults.add("labels", "keys must have 1 to 64 characters")
    if any(len(value) > 255 for value in labels.values()):
        faults.add("labels", "values must have at most 255 characters")


def _email(faults: Faults, email: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    texts = {name: str(email[name]) for name in ("subject", "text", "html", "sender", "reply_to")}
    headers: Mapping[str, str] = email["headers"]  # type: ignore[assignment]
    faults.line("email.subject", texts["subject"], required=True)
    if not texts["text"] and not texts["html"]:
        faults.add("email", "needs text, html, or both")
    for name, form in MAILBOXES.items():
        if texts[name] and faults.line(f"email.{name}", texts[name]):
            texts[name] = faults.canonical(f"email.{name}", texts[name], form)
    _check_headers(faults, headers)
    size = sum(len(text.encode()) for text in [*texts.values(), *headers, *headers.values()])
    if size > MAX_CONTENT:
        faults.add("email", f"has {size} bytes, more than {MAX_CONTENT}")
    yield from ((name, text) for name, text in texts.items() if text)
    if headers:
        yield "headers", dict(headers)


def _check_headers(faults: Faults, headers: Mapping[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        faults.add("email.headers", f"must have at most {MAX_HEADERS} entries")
    if not all(name.lower() in HEADERS or HEADER.fullmatch(name) for name in headers):
        faults.add("email.headers", "has a header that is not allowed")
    if len({name.lower() for name in headers}) < len(headers):
        faults.add("email.headers", "has one header twice")
    if any(len(value) > MAX_LINE for value in headers.values()):
        faults.add("email.headers", f"values must have at most {MAX_LINE} characters")
    if any(map(CONTROLS.search, headers.values())):
        faults.add("email.headers", "values must be one line without control characters")


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
    faults.length(name, text, 255)
    faults.raise_any()
    return text
