"""A fingerprint tells requests apart, and stays what it is for as long as its version."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.fingerprint import fingerprint
from services.scheduler.judging import candidate
from services.scheduler.notification import Request, TemplateUse
from services.scheduler.rendering import canonical_variables
from services.scheduler.templates import Rendered

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
LEAST = Request(
    tenant="default",
    idempotency_key="order-1",
    channel="EMAIL",
    address="someone@example.com",
    content={"subject": "Hello", "text": "How are you?"},
    priority=2,
    due=None,
    expiry=None,
    at_most_once=False,
    category="",
    reference=None,
    labels={},
)
MOST = replace(
    LEAST,
    content={
        "subject": "Grüße",
        "text": "text",
        "html": "<p>html</p>",
        "sender": "Zoë <zoe@example.com>",
        "reply_to": "help@example.com",
        "headers": {"X-B": "2", "X-A": "1"},
    },
    priority=3,
    due=NOON,
    expiry=timedelta(days=1, microseconds=1),
    at_most_once=True,
    category="news",
    reference="order",
    labels={"b": "2", "a": "\N{PILE OF POO}"},
)
DELAYED = replace(LEAST, due=timedelta(seconds=90), expiry=datetime(2030, 6, 1, 12, 0, 0, 5, tzinfo=UTC))

TEXTED = replace(LEAST, channel="SMS", address="07700900123", content={"text": "Hello"})
PUSHED = replace(
    LEAST, channel="PUSH", address="token", content={"title": "Hello", "body": "text", "data": {"b": "2", "a": "1"}}
)

TEMPLATED = replace(LEAST, content={}, template=TemplateUse("order-shipped", None, None, '{"order":17}'))
NAMED = replace(LEAST, address="", subscriber="ada")
PINNED = replace(LEAST, content={}, template=TemplateUse("order-shipped", 3, "de-AT", "{}"))

offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@pytest.mark.parametrize(
    ("request_", "golden"),
    [
        (LEAST, "01f2991b32179063a42411ae0d07302426bbfe8a329e57ec9d65cc98a1cdc8b7cc"),
        (MOST, "01348c4553de1bb8bc943b194b8132c7d7f71b87f2fd08a5ca47b2c4ac3d7544c0"),
        (DELAYED, "01fe68e4efca93d31a43b385b2784fe0142e15a8fe189fd4085200ae5b368c1fb0"),
        (TEXTED, "01022b725269c78ef37d59a9ed39fa3ea292e2982110c1c168237972cc4c570528"),
        (PUSHED, "01dc0b2bfe58518f2ef03facf757e562a3846b2dfd0f7225881ad385b583bb7f74"),
        (TEMPLATED, "010954bc35440b3f417600d2492f45de0608955f1198c9c82acb5db96652ba7ff6"),
        (PINNED, "01c39695d7f3bae8979ff087e023666be29445da4b5e856013f8e2af9340cc9333"),
        (NAMED, "010bb1e4a2dc3c0e96175277d8565e65ba367010b053cfe4b2ccf4a258c49c6cc6"),
    ],
    ids=["least", "most", "delayed", "texted", "pushed", "templated", "pinned", "named"],
)
def test_a_fingerprint_is_what_was_stored_by_earlier_versions(request_: Request, golden: str) -> None:
    assert fingerprint(request_).hex() == golden  # may change only with VERSION: stored keys would be refused


def test_what_is_asked_for_a_subscriber_is_his_name_wherever_it_goes() -> None:
    read = replace(NAMED, address="ada@example.com", person=UUID(int=1), pseudonym="p")
    assert fingerprint(read) == fingerprint(NAMED) != fingerprint(LEAST)


def test_who_asks_and_under_which_key_is_not_what_is_asked() -> None:
    assert fingerprint(replace(LEAST, tenant="other", idempotency_key="order-2")) == fingerprint(LEAST)


@given(offsets)
def test_equal_instants_are_equal_in_any_offset(offset: timezone) -> None:
    moved = replace(MOST, due=NOON.astimezone(offset), expiry=NOON.astimezone(offset))
    assert fingerprint(moved) == fingerprint(replace(MOST, due=NOON, expiry=NOON))


def test_a_delay_is_no_instant() -> None:
    instant = datetime(1970, 1, 1, tzinfo=UTC)
    assert fingerprint(replace(LEAST, due=timedelta())) != fingerprint(replace(LEAST, due=instant))
    assert fingerprint(replace(LEAST, due=timedelta())) != fingerprint(LEAST)


def test_a_delay_is_a_length_however_it_is_put() -> None:
    one, other = timedelta(minutes=1, seconds=30), timedelta(milliseconds=90_000)
    assert fingerprint(replace(LEAST, due=one)) == fingerprint(replace(LEAST, due=other))


def test_the_order_of_entries_says_nothing() -> None:
    headers = {"X-A": "1", "X-B": "2"}
    content = {name: MOST.content[name] for name in sorted(MOST.content)} | {"headers": headers}
    labels = {name: MOST.labels[name] for name in sorted(MOST.labels)}
    assert fingerprint(replace(MOST, content=content, labels=labels)) == fingerprint(MOST)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channel", "SMS"),
        ("address", "Someone@example.com"),
        ("priority", 1),
        ("due", NOON + timedelta(microseconds=1)),
        ("due", timedelta(seconds=1)),
        ("due", None),
        ("expiry", timedelta(days=1)),
        ("expiry", NOON),
        ("expiry", None),
        ("at_most_once", False),
        ("category", "News"),
        ("category", ""),
        ("reference", "order "),
        ("reference", None),
        ("labels", {"b": "2"}),
        ("labels", {"b": "2", "a": ""}),
        ("labels", {"b": "\N{PILE OF POO}", "a": "2"}),
        ("content", {**MOST.content, "subject": "Gru\u0308\u00dfe"}),
        ("content", {**MOST.content, "text": ""}),
        ("content", {**MOST.content, "html": "<p>html</p> "}),
        ("content", {**MOST.content, "sender": "zoe@example.com"}),
        ("content", {**MOST.content, "reply_to": "Help@example.com"}),
        ("content", {**MOST.content, "headers": {"X-B": "2"}}),
        ("content", {**MOST.content, "headers": {"X-B": "1", "X-A": "2"}}),
        ("content", {name: part for name, part in MOST.content.items() if name != "html"}),
    ],
)
def test_every_field_changes_the_fingerprint(field: str, value: Any) -> None:
    assert fingerprint(replace(MOST, **{field: value})) != fingerprint(MOST)


@pytest.mark.parametrize(
    "pair",
    [
        (replace(LEAST, category="x"), replace(LEAST, reference="x")),
        (replace(LEAST, due=NOON), replace(LEAST, expiry=NOON)),
        (replace(LEAST, due=timedelta(1)), replace(LEAST, expiry=timedelta(1))),
        (replace(LEAST, content={"subject": "x"}), replace(LEAST, labels={"subject": "x"})),
    ],
)
def test_a_value_counts_where_it_stands(pair: tuple[Request, Request]) -> None:
    one, other = pair
    assert fingerprint(one) != fingerprint(other)


def test_what_is_not_set_is_left_out_so_that_later_fields_change_nothing() -> None:
    form = '{"address":"someone@example.com","channel":"EMAIL","content":{"subject":"Hello","text":"How are you?"}}'
    assert fingerprint(LEAST)[1:] == hashlib.sha256(form.encode()).digest()


def test_a_fingerprint_begins_with_its_version() -> None:
    assert (fingerprint(LEAST)[0], len(fingerprint(LEAST))) == (1, 33)


def test_of_a_template_it_has_what_was_asked_and_not_what_was_rendered() -> None:
    one = candidate(TEMPLATED)
    rendered = replace(one, rendered=Rendered({"text": "Order 17"}, 4, "en"))
    assert fingerprint(rendered.request) == one.fingerprint


@pytest.mark.parametrize(
    "use",
    [
        TemplateUse("order-left", None, None, '{"order":17}'),
        TemplateUse("order-shipped", 1, None, '{"order":17}'),
        TemplateUse("order-shipped", None, "en", '{"order":17}'),
        TemplateUse("order-shipped", None, None, '{"order":18}'),
        TemplateUse("order-shipped", None, None, '{"order":17.0}'),
        TemplateUse("order-shipped", None, None, "{}"),
        None,
    ],
)
def test_every_part_of_a_template_changes_the_fingerprint(use: TemplateUse | None) -> None:
    assert fingerprint(replace(TEMPLATED, template=use)) != fingerprint(TEMPLATED)


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
names = st.text(characters, max_size=3)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(characters, max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(names, json_values, max_size=4), st.booleans(), st.sampled_from([None, 0, 3]))
def test_equal_variables_are_equal_however_they_are_written(
    variables: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    reordered = dict(reversed(variables.items()))
    assert canonical_variables(json.dumps(reordered, ensure_ascii=ascii_only, indent=indent)) == canonical_variables(
        json.dumps(variables)
    )
