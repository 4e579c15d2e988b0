"""The mail provider against the sandbox's mailbox: what a well-behaved server can be asked to do."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from sandbox.mailbox import Mailbox
from sandbox.store import Store
from services.worker.providers import Answer, Handover, Message, Outcome
from services.worker.providers.smtp import Smtp, SmtpSettings, Tls

CONTENT = {"subject": "Grüße", "text": "Hallo\n.\n..\n", "html": "<p>Hallo</p>"}


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Store(database_url) as store:
        yield store


@pytest.fixture
async def mailbox(store: Store) -> AsyncIterator[Mailbox]:
    async with Mailbox(store, 0) as mailbox:
        yield mailbox


@pytest.fixture
async def smtp(mailbox: Mailbox) -> AsyncIterator[Smtp]:
    async with Smtp(_settings(mailbox.port)) as smtp:
        yield smtp


def _settings(port: int, **changes: Any) -> SmtpSettings:
    return SmtpSettings(host="127.0.0.1", port=port, tls=Tls.NONE, sender="notify@example.com", **changes)


async def _deliver(
    smtp: Smtp, address: str, content: Mapping[str, object] = CONTENT, key: UUID | None = None
) -> tuple[Outcome, bool]:
    handover = Handover()
    outcome = await smtp.deliver(Message(key or uuid4(), 1, address, content), handover)
    return outcome, handover.begun


async def test_arrives_as_it_was_sent(smtp: Smtp, store: Store) -> None:
    key = uuid4()
    outcome, begun = await _deliver(smtp, "anna@example.org", key=key)
    assert (outcome.answer, outcome.code, begun) == (Answer.ACCEPTED, "250-2.0.0", True)
    (mail,) = await store.list_mails(delivery_key=str(key))
    assert outcome.provider_message_id == f"sandbox-{mail['id']}"
    assert (mail["address"], mail["sender"]) == ("anna@example.org", "notify@example.com")
    assert (mail["subject"], mail["text"], mail["html"]) == (CONTENT["subject"], CONTENT["text"], "<p>Hallo</p>\n")


async def test_many_at_once(smtp: Smtp, store: Store) -> None:
    keys = [uuid4() for _ in range(50)]
    outcomes = await asyncio.gather(*(_deliver(smtp, "anna@example.org", key=key) for key in keys))
    assert {outcome.answer for outcome, _ in outcomes} == {Answer.ACCEPTED}
    mails = await store.list_mails()
    assert sorted(mail["delivery_key"] for mail in mails) == sorted(map(str, keys))


async def test_address_with_a_local_part_that_is_not_ascii(smtp: Smtp, store: Store) -> None:
    outcome, _ = await _deliver(smtp, "jürgen@example.org")
    assert outcome.answer is Answer.ACCEPTED
    assert [mail["address"] for mail in await store.list_mails()] == ["jürgen@example.org"]


async def test_lines_of_any_length(smtp: Smtp, store: Store) -> None:
    text = "x" * 60_000 + "\n" + "é" * 2_000 + "\n"
    outcome, _ = await _deliver(smtp, "anna@example.org", {"subject": "s", "text": text})
    assert outcome.answer is Answer.ACCEPTED
    assert [mail["text"] for mail in await store.list_mails()] == [text]


@pytest.mark.parametrize(
    ("address", "answer", "code", "begun", "kept"),
    [
        ("bounce@example.org", Answer.PERMANENT_ADDRESS, "550-5.1.1", False, 0),
        ("reject@example.org", Answer.PERMANENT_MESSAGE, "554-5.7.1", True, 0),
        ("throttle@example.org", Answer.THROTTLED, "454-4.7.0", False, 0),
        ("down@example.org", Answer.TRANSIENT, "421", False, 0),
        ("550-5.2.2+anna@example.org", Answer.TRANSIENT, "550-5.2.2", False, 0),
        ("data-451@example.org", Answer.TRANSIENT, "451", False, 0),
        ("dot-552@example.org", Answer.PERMANENT_MESSAGE, "552", True, 0),
        ("close-before-dot@example.org", Answer.TRANSIENT, "data-closed", False, 0),
        ("close-after-dot@example.org", Answer.UNKNOWN, "dot-closed", True, 1),
        ("accept-then-hang@example.org", Answer.UNKNOWN, "dot-timeout", True, 1),
        ("accept@example.org", Answer.ACCEPTED, "250-2.0.0", True, 1),
    ],
)
async def test_rehearsal(
    mailbox: Mailbox, store: Store, address: str, answer: Answer, code: str, begun: bool, kept: int
) -> None:
    settings = _settings(mailbox.port, answer_timeout=0.3 if "timeout" in code else 30)
    async with Smtp(settings) as smtp:
        outcome, handed_over = await _deliver(smtp, address)
    assert (outcome.answer, outcome.code, handed_over) == (answer, code, begun)
    assert len(await store.list_mails(address)) == kept
    assert len(await store.list_requests("smtp", address)) == 1


async def test_fails_twice_then_accepts(smtp: Smtp, store: Store) -> None:
    address = "451x2+anna@example.org"
    answers = [(await _deliver(smtp, address))[0].answer for _ in range(3)]
    assert answers == [Answer.TRANSIENT, Answer.TRANSIENT, Answer.ACCEPTED]
    assert len(await store.list_mails(address)) == 1


async def test_script_in_the_sender_is_played_at_mail(smtp: Smtp, store: Store) -> None:
    content = CONTENT | {"sender": "down@example.com"}
    outcome, begun = await _deliver(smtp, "anna@example.org", content)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "421", False)
    (refused,) = await store.list_requests()
    assert (refused["address"], refused["action"]) == ("down@example.com", "421")


async def test_what_cannot_be_composed_never_connects() -> None:
    async with Smtp(_settings(1)) as smtp:
        outcome, begun = await _deliver(smtp, "anna@example.org", {"subject": "a\nBcc: b@example.org", "text": "t"})
    assert (outcome.answer, outcome.code, begun) == (Answer.PERMANENT_MESSAGE, "message-malformed", False)


async def test_too_big_is_not_even_offered(smtp: Smtp, store: Store) -> None:
    outcome, begun = await _deliver(smtp, "anna@example.org", {"subject": "s", "text": ("x" * 70 + "\n") * 160_000})
    assert (outcome.answer, outcome.code, begun) == (Answer.PERMANENT_MESSAGE, "size-exceeded", False)
    assert await store.list_requests() == []


async def test_no_server() -> None:
    async with Smtp(_settings(1)) as smtp:
        outcome, begun = await _deliver(smtp, "anna@example.org")
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "connect-refused", False)


async def test_no_such_host() -> None:
    settings = SmtpSettings(host="mail.invalid", port=25, tls=Tls.NONE, sender="notify@example.com")
    async with Smtp(settings) as smtp:
        outcome, begun = await _deliver(smtp, "anna@example.org")
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "connect-unresolved", False)


async def test_outcome_is_json_without_words(smtp: Smtp) -> None:
    outcome, _ = await _deliver(smtp, "bounce+anna@example.org")
    assert "anna" not in json.dumps([outcome.code, outcome.provider_message_id, repr(outcome)])
