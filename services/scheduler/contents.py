"""What may be said on each channel, and how it is stored: by the names of the contract, without what is not set."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from services.scheduler.addresses import canonical_email, canonical_mailbox
from services.scheduler.faults import CONTROLS, Faults, is_visible

# The contents that say by themselves what is said, and the channel that follows from each.
CHANNELS = {"email": "EMAIL", "sms": "SMS", "push": "PUSH"}

MAX_EMAIL = 64 * 1024
MAX_LINE = 998  # RFC 5322, 2.1.1
MAX_HEADERS = 20
MAX_SMS = 1_600  # as many as providers take; more than ten segments
MAX_TITLE = 200
MAX_PUSH = 4_096  # what FCM and APNs take
MAX_DATA = 20

HEADER = re.compile(r"[Xx]-[A-Za-z0-9-]{1,70}")
HEADERS = frozenset(
    {"list-unsubscribe", "list-unsubscribe-post", "list-id", "in-reply-to", "references", "auto-submitted"}
)
UNSENDABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # a text message has tabs and line breaks
MAILBOXES = {"sender": canonical_mailbox, "reply_to": canonical_email}

# A message's fields: texts, and maps of texts.
Parts: TypeAlias = Mapping[str, str | Mapping[str, str]]
Rule: TypeAlias = Callable[[Faults, Parts], Iterator[tuple[str, object]]]


def _email(faults: Faults, parts: Parts) -> Iterator[tuple[str, object]]:
    texts, headers = _texts(parts), _map(parts, "headers")
    _check_line(faults, "email.subject", texts["subject"], required=True)
    if not is_visible(texts["text"] + texts["html"]):
        faults.add("email", "needs text, html, or both, that are not blank")
    for name, form in MAILBOXES.items():
        if texts[name] and _check_line(faults, f"email.{name}", texts[name]):
            texts[name] = faults.canonical(f"email.{name}", texts[name], form)
    _check_headers(faults, headers)
    _check_size(faults, "email", [*texts.values(), *headers, *headers.values()], MAX_EMAIL)
    yield from _said(texts, headers=headers)


def _sms(faults: Faults, parts: Parts) -> Iterator[tuple[str, object]]:
    texts = _texts(parts)
    faults.length("sms.text", texts["text"], MAX_SMS, required=True)
    faults.visible("sms.text", texts["text"])
    if UNSENDABLE.search(texts["text"]):
        faults.add("sms.text", "must not contain control characters")
    yield from _said(texts)


def _push(faults: Faults, parts: Parts) -> Iterator[tuple[str, object]]:
    texts, data = _texts(parts), _map(parts, "data")
    _check_line(faults, "push.title", texts["title"], MAX_TITLE, required=True)
    if len(data) > MAX_DATA:
        faults.add("push.data", f"must have at most {MAX_DATA} entries")
    if "" in data:
        faults.add("push.data", "must not have an empty name")
    _check_size(faults, "push", [*texts.values(), *data, *data.values()], MAX_PUSH)
    yield from _said(texts, data=data)


RULES: Mapping[str, Rule] = {"EMAIL": _email, "SMS": _sms, "PUSH": _push}


def _texts(parts: Parts) -> dict[str, str]:
    return {name: part for name, part in parts.items() if isinstance(part, str)}


def _map(parts: Parts, name: str) -> Mapping[str, str]:
    part = parts[name]
    return {} if isinstance(part, str) else part


def _said(texts: Mapping[str, str], **maps: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    yield from ((name, text) for name, text in texts.items() if text)
    yield from ((name, dict(entries)) for name, entries in maps.items() if entries)


def _check_size(faults: Faults, name: str, texts: list[str], most: int) -> None:
    size = sum(len(text.encode()) for text in texts)
    if size > most:
        faults.add(name, f"has {size} bytes, more than {most}")


def _check_line(faults: Faults, name: str, text: str, longest: int = MAX_LINE, *, required: bool = False) -> bool:
    """What must be one line, as in a mail's header. Answers whether it is."""
    before = len(faults.found)
    faults.length(name, text, longest, required=required)
    faults.line(name, text)
    if required:
        faults.visible(name, text)
    return len(faults.found) == before


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
