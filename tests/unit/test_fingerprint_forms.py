"""The first form of a fingerprint, written down once more, and never to be changed: what it says of a request stays."""

import hashlib
import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.fingerprint import fingerprint
from services.scheduler.notification import Request

KEY = {"tenant", "idempotency_key"}
UNSAID: dict[str, Any] = {
    "due": None,
    "expiry": None,
    "reference": None,
    "priority": 2,
    "at_most_once": False,
    "category": "",
    "labels": {},
}
OLD_FIELDS = {"channel", "address", "content", *UNSAID}
NEWER: dict[str, Any] = {"template": None, "subscriber": None, "person": None, "pseudonym": None}
"""The fields that came later, each as it is where a request does not say it."""

texts = st.text(max_size=5)
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
instants = st.datetimes(timezones=offsets).filter(lambda instant: 1 < instant.year < 9999)
spans = st.timedeltas(timedelta(), timedelta(days=400))
moments = st.none() | instants | spans
requests = st.builds(
    Request,
    tenant=st.just("default"),
    idempotency_key=texts,
    channel=st.sampled_from(["EMAIL", "SMS", "PUSH"]),
    address=texts,
    content=st.dictionaries(texts, texts | st.dictionaries(texts, texts, max_size=2), max_size=3),
    priority=st.integers(1, 3),
    due=moments,
    expiry=moments,
    at_most_once=st.booleans(),
    category=texts,
    reference=st.none() | texts,
    labels=st.dictionaries(texts, texts, max_size=3),
    **{name: st.just(value) for name, value in NEWER.items()},
)


def first_form(request: Request) -> bytes:
    """Of the fields that there were then."""

    def plain(value: Any) -> Any:
        match value:
            case datetime():
                return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00").zfill(32)
            case timedelta():
                return f"+{(value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds}us"
            case _:
                return value

    said = {name: getattr(request, name) for name in OLD_FIELDS}
    form = {name: plain(value) for name, value in said.items() if name not in UNSAID or value != UNSAID[name]}
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"\x01" + hashlib.sha256(text.encode()).digest()


@given(requests)
def test_what_uses_no_newer_field_has_the_fingerprint_that_it_always_had(request: Request) -> None:
    assert fingerprint(request) == first_form(request)


def test_every_field_of_a_request_is_of_the_first_form_or_came_later_or_is_its_key() -> None:
    assert {field.name for field in fields(Request)} == KEY | OLD_FIELDS | NEWER.keys()
