"""A request is refused with every fault it has, named by field; what passes is canonical and fits its bounds."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.contents import Parts
from services.scheduler.notification import Request, TemplateUse
from services.scheduler.templates import Use
from services.scheduler.validation import MAX_SUBSCRIBER, Draft, check, key_of, short
from shared.errors import RequestInvalid, Violation
from shared.ids import uuid_of

NO_MAIL: Parts = {"subject": "", "text": "", "html": "", "sender": "", "reply_to": "", "headers": {}}
DRAFT = Draft(
    tenant="default",
    idempotency_key="order-1",
    recipient="address",
    address="someone@example.com",
    content="email",
    parts={**NO_MAIL, "subject": "Hello", "text": "How are you?"},
    priority=0,
    due=None,
    expiry=None,
    at_most_once=False,
    category="",
    reference="",
    labels={},
)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)

# Where str.splitlines breaks a line, and so Python's email package; and other controls that no header may have.
LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
CONTROLS = ["\x01", "\x08", "\x1b", "\x1f", "\x7f", "\x80", "\x9f"]


SMS = replace(DRAFT, content="sms", address="+44 7700 900123", parts={"text": "Hello"})
PUSH = replace(DRAFT, content="push", address="token-1", parts={"title": "Hello", "body": "", "data": {}})

USE = Use("order-shipped", 0, "EMAIL", "", '{"b": 1, "a": 2}')


def mail(**parts: Any) -> Draft:
    return replace(DRAFT, parts={**DRAFT.parts, **parts})


def sms(**parts: Any) -> Draft:
    return replace(SMS, parts={**SMS.parts, **parts})


def push(**parts: Any) -> Draft:
    return replace(PUSH, parts={**PUSH.parts, **parts})


def templated(**fields: Any) -> Draft:
    return replace(DRAFT, content="template", parts={}, template=replace(USE, **fields))


def refused(draft: Draft) -> tuple[Violation, ...]:
    with pytest.raises(RequestInvalid) as error:
        check(draft)
    return error.value.violations


def refused_fields(draft: Draft) -> list[str]:
    return [violation.field for violation in refused(draft)]


def test_a_request_that_says_the_least_is_completed() -> None:
    assert check(DRAFT) == Request(
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


def test_a_request_that_says_everything_is_kept() -> None:
    parts: Parts = {
        "subject": "Hello",
        "text": "text",
        "html": "<p>html</p>",
        "sender": "Shop <shop@example.com>",
        "reply_to": "help@example.com",
        "headers": {"X-Campaign": "spring"},
    }
    said: dict[str, Any] = {
        "priority": 3,
        "due": NOON,
        "expiry": DAY,
        "at_most_once": True,
        "category": "news",
        "reference": "order",
        "labels": {"a": "b"},
    }
    request = check(replace(DRAFT, parts=parts, **said))
    assert {name: getattr(request, name) for name in said} == said
    assert request.content == parts


def test_the_address_is_stored_in_its_canonical_form() -> None:
    assert check(replace(DRAFT, address="Some.One@EXAMPLE.com")).address == "Some.One@example.com"


def test_the_channel_follows_from_the_content() -> None:
    assert [check(draft).channel for draft in (DRAFT, SMS, PUSH)] == ["EMAIL", "SMS", "PUSH"]


def test_content_is_stored_without_what_is_not_said() -> None:
    assert check(sms(text="\tHello ")).content == {"text": "\tHello "}
    assert check(PUSH).content == {"title": "Hello"}
    everything: Parts = {"title": "Hello", "body": "How are you?", "data": {"order": "1", "note": ""}}
    assert check(replace(PUSH, parts=everything)).content == everything


def test_what_holds_for_all_channels_is_said_beside_what_holds_for_one() -> None:
    wrong = replace(sms(text=""), address="x", due=-DAY, expiry=-DAY, labels={"": ""})
    assert refused_fields(wrong) == ["address", "sms.text", "delay", "ttl", "labels"]


def test_mailboxes_are_stored_in_their_canonical_form() -> None:
    content = check(mail(sender='"Shop" <shop@EXAMPLE.com>', reply_to="help@EXAMPLE.com")).content
    assert (content["sender"], content["reply_to"]) == ("Shop <shop@example.com>", "help@example.com")


@pytest.mark.parametrize(
    "draft",
    [
        replace(DRAFT, idempotency_key="k"),
        replace(DRAFT, idempotency_key="k" * 255),
        replace(DRAFT, idempotency_key="\N{PILE OF POO}" * 255),
        replace(DRAFT, category="c" * 64),
        replace(DRAFT, reference="r" * 255),
        replace(DRAFT, labels={str(number): "" for number in range(16)}),
        replace(DRAFT, labels={"n" * 64: "v" * 255, "n": ""}),
        replace(DRAFT, due=timedelta()),
        replace(DRAFT, due=365 * DAY),
        replace(DRAFT, expiry=TICK),
        replace(DRAFT, expiry=365 * DAY),
        mail(subject="s"),
        mail(subject="s" * 998),
        mail(subject="\N{PILE OF POO}" * 998),
        mail(text="", html="<p>"),
        mail(headers={f"X-{number}": "" for number in range(20)}),
        mail(headers={"X-Long": "v" * 998}),
        mail(headers={"X-" + "n" * 70: "v"}),
        mail(sender="n" * 976 + " <someone@example.com>"),
        sms(text="t"),
        sms(text="\N{PILE OF POO}" * 1_600),
        push(title="t" * 200),
        push(title="t", body="b" * 4_095),
        push(title="t", body="\N{PILE OF POO}" * 1_023 + "bbb"),
        push(data={str(number): "" for number in range(20)}),
        push(title="t", data={"k" * 2_000: "v" * 2_095}),
        replace(PUSH, address="!" + "t" * 2_046 + "~"),
    ],
)
def test_a_bound_belongs_to_what_it_allows(draft: Draft) -> None:
    check(draft)


@pytest.mark.parametrize(
    ("field", "draft"),
    [
        ("idempotency_key", replace(DRAFT, idempotency_key="")),
        ("idempotency_key", replace(DRAFT, idempotency_key="k" * 256)),
        ("recipient", replace(DRAFT, recipient=None)),
        ("subscriber", replace(DRAFT, recipient="subscriber")),
        ("subscriber", replace(DRAFT, recipient="subscriber", subscriber="s" * 256)),
        ("subscriber", replace(DRAFT, recipient="subscriber", subscriber="a\nb")),
        ("address", replace(DRAFT, address="")),
        ("address", replace(DRAFT, address="someone")),
        ("address", replace(DRAFT, address="a" * 243 + "@example.com")),
        ("address", replace(DRAFT, address="Someone <someone@example.com>")),
        ("content", replace(DRAFT, content=None)),
        ("template.template", templated(name="")),
        ("template.template", templated(name="a b")),
        ("template.version", templated(version=-1)),
        ("template.channel", templated(channel=None)),
        ("template.locale", templated(locale="d")),
        ("template.variables_json", templated(variables_json="[]")),
        ("address", replace(templated(), address="someone")),
        ("category", replace(DRAFT, category="c" * 65)),
        ("reference", replace(DRAFT, reference="r" * 256)),
        ("labels", replace(DRAFT, labels={str(number): "" for number in range(17)})),
        ("labels", replace(DRAFT, labels={"": "v"})),
        ("labels", replace(DRAFT, labels={"n" * 65: "v"})),
        ("labels", replace(DRAFT, labels={"n": "v" * 256})),
        ("delay", replace(DRAFT, due=-TICK)),
        ("delay", replace(DRAFT, due=365 * DAY + TICK)),
        ("ttl", replace(DRAFT, expiry=timedelta())),
        ("ttl", replace(DRAFT, expiry=-DAY)),
        ("ttl", replace(DRAFT, expiry=365 * DAY + TICK)),
        ("email", mail(text="", html="")),
        ("email.subject", mail(subject="")),
        ("email.subject", mail(subject="s" * 999)),
        ("email.sender", mail(sender="someone")),
        ("email.sender", mail(sender="a@example.com, b@example.com")),
        ("email.sender", mail(sender="n" * 977 + " <someone@example.com>")),
        ("email.reply_to", mail(reply_to="someone")),
        ("email.reply_to", mail(reply_to="Someone <someone@example.com>")),
        ("email.headers", mail(headers={f"X-{number}": "" for number in range(21)})),
        ("email.headers", mail(headers={"X-Long": "v" * 999})),
        ("email.headers", mail(headers={"X-" + "n" * 71: "v"})),
        ("sms.text", sms(text="")),
        ("sms.text", sms(text="t" * 1_601)),
        ("push.title", push(title="")),
        ("push.title", push(title="t" * 201)),
        ("push", push(title="t", body="b" * 4_096)),
        ("push", push(title="t", body="\N{PILE OF POO}" * 1_024)),
        ("push", push(title="t", data={"k" * 2_000: "v" * 2_096})),
        ("push.data", push(data={str(number): "" for number in range(21)})),
        ("address", replace(SMS, address="someone@example.com")),
        ("address", replace(SMS, address="")),
        ("address", replace(PUSH, address="")),
        ("address", replace(PUSH, address="t" * 2_049)),
        ("address", replace(PUSH, address="two words")),
        ("address", replace(PUSH, address="tok\u00e9n")),
        ("address", replace(PUSH, address="token\n")),
    ],
)
def test_what_lies_beyond_a_bound_is_refused_by_its_field(field: str, draft: Draft) -> None:
    assert refused_fields(draft) == [field]


@pytest.mark.parametrize("draft", [replace(DRAFT, due=NOON), replace(DRAFT, expiry=NOON)])
def test_a_time_is_judged_later_by_the_databases_clock(draft: Draft) -> None:
    check(draft)


@pytest.mark.parametrize("control", LINE_BREAKS + CONTROLS)
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("subject", "before{}after"),
        ("sender", "be{}fore <someone@example.com>"),
        ("sender", '"be{}fore" <someone@example.com>'),
        ("sender", "someone@exam{}ple.com"),
        ("reply_to", "someone@example.com{}"),
    ],
)
def test_a_control_character_cannot_reach_a_header(field: str, text: str, control: str) -> None:
    assert refused_fields(mail(**{field: text.format(control)})) == [f"email.{field}"]


@pytest.mark.parametrize("control", LINE_BREAKS + CONTROLS)
@pytest.mark.parametrize(("name", "value"), [("X-Test", "before{}after"), ("X-Te{}st", "value"), ("X-Test{}", "value")])
def test_a_control_character_cannot_reach_a_further_header(name: str, value: str, control: str) -> None:
    assert refused_fields(mail(headers={name.format(control): value.format(control)})) == ["email.headers"]


@pytest.mark.parametrize("control", [*LINE_BREAKS, *CONTROLS, "\t"])
def test_text_may_have_what_a_header_may_not(control: str) -> None:
    body = f"before{control}after"
    content = check(mail(text=body, html=body)).content
    assert (content["text"], content["html"]) == (body, body)


def test_a_tab_is_a_space_of_a_header() -> None:
    check(mail(subject="one\ttwo", headers={"X-Test": "one\ttwo"}))


@pytest.mark.parametrize(
    "name",
    [
        "List-Unsubscribe",
        "List-Unsubscribe-Post",
        "List-Id",
        "In-Reply-To",
        "References",
        "Auto-Submitted",
        "LIST-ID",
        "x-test",
        "X-Test-2",
    ],
)
def test_a_header_of_the_allow_list_is_kept(name: str) -> None:
    assert check(mail(headers={name: "value"})).content["headers"] == {name: "value"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Subject",
        "From",
        "To",
        "Bcc",
        "Reply-To",
        "Content-Type",
        "DKIM-Signature",
        "Message-ID",
        "X",
        "X-",
        "X-Te st",
        "X-Test:",
        "X-T\u00e9st",
        "X-\u017f",  # the long s, which is an s to a pattern that ignores case
        "\u212a-Test",
        " X-Test",
        "List-Id ",
        "Listen-Id",
    ],
)
def test_a_header_beyond_the_allow_list_is_refused(name: str) -> None:
    assert refused_fields(mail(headers={name: "value"})) == ["email.headers"]


@pytest.mark.parametrize("names", [("X-Test", "x-test"), ("List-Id", "LIST-ID")])
def test_one_header_in_two_spellings_is_refused(names: tuple[str, str]) -> None:
    (violation,) = refused(mail(headers=dict.fromkeys(names, "value")))
    assert violation == Violation("email.headers", "has one header twice")


@pytest.mark.parametrize("name", ["a" * 27, "é" * 12 + "aaa"])
def test_content_is_measured_in_bytes_of_utf_8(name: str) -> None:
    sender, text = f"{name} <someone@example.com>", "é" * ((64 * 1024 - 5 - 49 - 8) // 2)
    draft = mail(sender=sender, text=text, headers={"X-A": "value"})
    check(draft)
    (violation,) = refused(replace(draft, parts={**draft.parts, "text": text + "!"}))
    assert violation == Violation("email", f"has {64 * 1024 + 1} bytes, more than {64 * 1024}")


def test_a_caller_learns_of_all_faults_at_once() -> None:
    wrong = replace(
        mail(subject="", text="", sender="x", reply_to="x", headers={"Bcc": "x"}),
        idempotency_key="",
        address="x",
        due=-DAY,
        expiry=-DAY,
        category="c" * 65,
        reference="r" * 256,
        labels={"": ""},
    )
    assert refused_fields(wrong) == [
        "idempotency_key",
        "address",
        "email.subject",
        "email",
        "email.sender",
        "email.reply_to",
        "email.headers",
        "delay",
        "ttl",
        "category",
        "reference",
        "labels",
    ]


def test_several_faults_of_the_headers_are_told_one_by_one() -> None:
    headers = {"Bcc": "a\nb", "X-A": "v" * 999, "x-a": "", **{f"X-{number}": "" for number in range(20)}}
    assert [violation.problem for violation in refused(mail(headers=headers))] == [
        "must have at most 20 entries",
        "has a header that is not allowed",
        "has one header twice",
        "values must have at most 998 characters",
        "values must be one line without control characters",
    ]


def test_a_refusal_names_fields_and_no_values() -> None:
    secret = "s3cret\n"
    wrong = replace(
        mail(
            subject=secret * 999,
            text=secret * 10_000,
            sender=secret,
            reply_to=secret.strip(),
            headers={secret: secret * 999},
        ),
        idempotency_key=secret * 256,
        address=secret,
        category=secret * 65,
        reference=secret * 256,
        labels={secret * 65: secret * 256},
    )
    with pytest.raises(RequestInvalid) as error:
        check(wrong)
    told = [str(error.value), *(violation.field + violation.problem for violation in error.value.violations)]
    assert not any("s3cret" in text for text in told)


def test_what_is_kept_of_a_request_shows_no_values() -> None:
    secret = "s3cret"
    draft = replace(
        mail(subject=secret, text=secret, sender=f"{secret}@example.com", headers={"X-Test": secret}),
        idempotency_key=secret,
        address=f"{secret}@example.com",
        labels={secret: secret},
    )
    assert secret not in repr(draft) + repr(check(draft))


texts = st.text(max_size=40)
headers = st.dictionaries(st.one_of(st.sampled_from(["X-A", "x-a", "List-Id", "Bcc"]), texts), texts, max_size=4)
mails = st.fixed_dictionaries(
    {
        "subject": st.text(max_size=1_100),
        "text": st.one_of(texts, st.integers(0, 70_000).map("é".__mul__)),
        "html": texts,
        "sender": st.one_of(st.emails(), texts, st.just("")),
        "reply_to": st.one_of(st.emails(), texts, st.just("")),
        "headers": headers,
    }
)
short_messages = st.fixed_dictionaries({"text": st.one_of(texts, st.integers(0, 2_000).map("é".__mul__))})
pushes = st.fixed_dictionaries(
    {
        "title": st.text(max_size=250),
        "body": st.one_of(texts, st.integers(0, 3_000).map("é".__mul__)),
        "data": st.dictionaries(texts, texts, max_size=25),
    }
)
CONTENTS = {"email": mails, "sms": short_messages, "push": pushes}
contents = st.sampled_from(["email", "email", "sms", "push", None]).flatmap(
    lambda name: st.tuples(st.just(name), CONTENTS.get(name or "", st.just({})))
)
phones = st.from_regex(r"\+?[0-9 ()-]{1,20}", fullmatch=True)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    content, parts = draw(contents)
    return draw(
        st.builds(
            Draft,
            tenant=st.just("default"),
            idempotency_key=st.text(max_size=300),
            recipient=st.sampled_from([None, "address", "address", "subscriber"]),
            address=st.one_of(st.emails(), phones, texts),
            content=st.just(content),
            parts=st.just(parts),
            priority=st.integers(0, 3),
            due=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)), st.timedeltas()),
            expiry=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)), st.timedeltas()),
            subscriber=st.text(max_size=300),
            at_most_once=st.booleans(),
            category=st.text(max_size=70),
            reference=st.text(max_size=300),
            labels=st.dictionaries(texts, st.text(max_size=300), max_size=20),
        )
    )


FIELDS = {
    "idempotency_key",
    "recipient",
    "address",
    "subscriber",
    "content",
    "email",
    "sms.text",
    "push",
    "push.title",
    "push.data",
    "delay",
    "ttl",
    "category",
    "reference",
    "labels",
    *(f"email.{part}" for part in NO_MAIL),
}


@settings(deadline=None)
@given(drafts())
def test_a_request_fits_its_bounds_or_is_refused_by_known_fields(draft: Draft) -> None:
    answer = judge(draft)
    if isinstance(answer, Request):
        assert_fits(answer)
    else:
        assert {violation.field for violation in answer.violations} <= FIELDS


@settings(deadline=None)
@given(drafts())
def test_a_canonical_request_is_its_own_canonical_form(draft: Draft) -> None:
    answer = judge(draft)
    if isinstance(answer, Request):
        parts: Any = {**dict.fromkeys(draft.parts, ""), **answer.content}
        parts |= {name: answer.content.get(name, {}) for name in ("headers", "data") if name in draft.parts}
        assert check(replace(draft, address=answer.address, parts=parts)) == answer


def judge(draft: Draft) -> Request | RequestInvalid:
    try:
        return check(draft)
    except RequestInvalid as error:
        return error


def assert_fits(request: Request) -> None:
    content: Mapping[str, Any] = request.content
    {"EMAIL": assert_mail_fits, "SMS": assert_sms_fits, "PUSH": assert_push_fits}[request.channel](content)
    assert 1 <= len(request.idempotency_key) <= 255
    if request.subscriber is None:
        assert 1 <= len(request.address) <= 2_048
        assert request.address.isprintable()
    else:
        assert 1 <= len(request.subscriber) <= MAX_SUBSCRIBER
        assert len(f"{request.subscriber}.".splitlines()) == 1
    assert request.priority in (1, 2, 3)


def assert_mail_fits(content: Mapping[str, Any]) -> None:
    lines = [content["subject"], content.get("sender", ""), *content.get("headers", {}).values()]
    assert all(len(line) <= 998 and len(f"{line}.".splitlines()) == 1 for line in lines)
    assert size(content) <= 64 * 1024


def assert_sms_fits(content: Mapping[str, Any]) -> None:
    assert 1 <= len(content["text"]) <= 1_600


def assert_push_fits(content: Mapping[str, Any]) -> None:
    assert 1 <= len(content["title"]) <= 200
    assert len(content.get("data", {})) <= 20
    assert size(content) <= 4_096


def size(content: Mapping[str, Any]) -> int:
    texts = [part for part in content.values() if isinstance(part, str)]
    texts += [text for part in content.values() if isinstance(part, dict) for text in chain(*part.items())]
    return sum(len(text.encode()) for text in texts)


@pytest.mark.parametrize("text", ["0191d4f5-7c6e-7abc-8def-0123456789ab", "0191D4F5-7C6E-7ABC-8DEF-0123456789AB"])
def test_an_id_is_a_uuid_in_either_case(text: str) -> None:
    assert uuid_of("notification_id", text) == UUID("0191d4f5-7c6e-7abc-8def-0123456789ab")


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "0191d4f57c6e7abc8def0123456789ab",
        "{0191d4f5-7c6e-7abc-8def-0123456789ab}",
        "urn:uuid:0191d4f5-7c6e-7abc-8def-0123456789ab",
        "0191d4f5-7c6e-7abc-8def-0123456789ab\n",
        "0191d4f5-7c6e-7abc-8def-0123456789ag",
        "0191d4f5-7c6e-7abc-8def-0123456789a\u0661",  # a digit, but an Arabic one
    ],
)
def test_another_form_of_an_id_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid) as error:
        uuid_of("notification_id", text)
    assert error.value.violations == (Violation("notification_id", "is not a UUID"),)


def test_a_missing_id_is_refused() -> None:
    with pytest.raises(RequestInvalid) as error:
        uuid_of("notification_id", "")
    assert error.value.violations == (Violation("notification_id", "is required"),)


def test_a_key_is_an_id_or_what_the_caller_chose() -> None:
    id_ = "0191d4f5-7c6e-7abc-8def-0123456789ab"
    assert key_of("notification_id", id_) == UUID(id_)
    assert key_of("idempotency_key", id_) == id_
    assert key_of("idempotency_key", "k" * 255) == "k" * 255


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        (None, "", "key"),
        ("notification_id", "x", "notification_id"),
        ("idempotency_key", "", "idempotency_key"),
        ("idempotency_key", "k" * 256, "idempotency_key"),
    ],
)
def test_a_key_that_is_neither_is_refused(name: str | None, text: str, field: str) -> None:
    with pytest.raises(RequestInvalid) as error:
        key_of(name, text)
    assert [violation.field for violation in error.value.violations] == [field]


def test_a_reason_has_up_to_255_characters() -> None:
    assert short("reason", "r" * 255) == "r" * 255
    with pytest.raises(RequestInvalid):
        short("reason", "r" * 256)


def test_a_request_with_a_template_has_no_content_and_its_variables_in_one_form() -> None:
    request = check(templated(version=3, locale="DE-at"))
    assert (request.channel, request.content) == ("EMAIL", {})
    assert request.template == TemplateUse("order-shipped", 3, "de-AT", '{"a":2,"b":1}')
    assert check(templated()).template == TemplateUse("order-shipped", None, None, '{"a":2,"b":1}')
