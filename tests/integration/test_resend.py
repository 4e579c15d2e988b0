"""Mail over Resend, against the sandbox's: each row of its tables, and one mail for each delivery key."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from sandbox import resend as sandbox
from sandbox.postgres import Postgres
from services.worker.providers import Answer
from services.worker.providers.resend import Resend
from services.worker.providers.resend_codes import BUSY_REST, OWN_SENDER, QUOTA_REST, TABLE
from services.worker.providers.resend_settings import ResendSettings
from tests.pretended import Pretended, deciding, deliver, pretending
from tests.waiting import eventually

# One server for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCEPTED, MESSAGE, ADDRESS, MISCONFIGURED, THROTTLED, TRANSIENT, UNKNOWN = Answer
CONTENT = {"subject": "Grüße", "text": "Hallo ☃"}
NONE = timedelta()
SECOND = timedelta(seconds=1)

# What is written into the address, what comes of it, and for how long it rests.
EXAMPLES = [
    ("anna", ACCEPTED, "200", NONE),
    ("missing_api_key", MISCONFIGURED, "401-missing_api_key", NONE),
    ("restricted_api_key", MISCONFIGURED, "401-restricted_api_key", NONE),
    ("invalid_api_key", MISCONFIGURED, "403-invalid_api_key", NONE),
    ("unverified_domain", MISCONFIGURED, "403-validation_error", NONE),
    ("invalid_from_address", MISCONFIGURED, "422-invalid_from_address", NONE),
    ("invalid_access", MISCONFIGURED, "422-invalid_access", NONE),
    ("invalid_region", MISCONFIGURED, "422-invalid_region", NONE),
    ("invalid_idempotency_key", MISCONFIGURED, "400-invalid_idempotency_key", NONE),
    ("not_found", MISCONFIGURED, "404-not_found", NONE),
    ("method_not_allowed", MISCONFIGURED, "405-method_not_allowed", NONE),
    ("invalid_idempotent_request", UNKNOWN, "409-invalid_idempotent_request", NONE),
    ("concurrent_idempotent_requests", TRANSIENT, "409-concurrent_idempotent_requests", BUSY_REST),
    ("daily_quota_exceeded", THROTTLED, "429-daily_quota_exceeded", QUOTA_REST),
    ("monthly_quota_exceeded", THROTTLED, "429-monthly_quota_exceeded", QUOTA_REST),
    ("rate_limit_exceeded", THROTTLED, "429-rate_limit_exceeded", SECOND),
    ("throttle", THROTTLED, "429-rate_limit_exceeded", SECOND),
    ("reject", MESSAGE, "400-validation_error", NONE),
    ("bounce", MESSAGE, "422-validation_error", NONE),
    ("missing_required_field", MESSAGE, "422-missing_required_field", NONE),
    ("invalid_parameter", MESSAGE, "422-invalid_parameter", NONE),
    ("invalid_attachment", MESSAGE, "422-invalid_attachment", NONE),
    ("security_error", MESSAGE, "451-security_error", NONE),
    ("application_error", UNKNOWN, "500-application_error", NONE),
    ("internal_server_error", UNKNOWN, "500-internal_server_error", NONE),
    # What no row names, by its class.
    ("302", MISCONFIGURED, "302", NONE),
    ("408", TRANSIENT, "408", NONE),
    ("425", TRANSIENT, "425", NONE),
    ("429", THROTTLED, "429", timedelta(seconds=2)),
    ("418", MESSAGE, "418", NONE),
    ("down", UNKNOWN, "503", NONE),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pretended(postgres: Postgres) -> AsyncIterator[Pretended]:
    async with pretending(postgres, lambda store: [sandbox.Resend(store)]) as pretended:
        yield pretended


def made(server: str, **changes: Any) -> Resend:
    known = {"api_key": sandbox.API_KEY, "sender": "Us <us@example.com>", "timeout": 30.0}
    return Resend(ResendSettings(**{"url": f"{server}/resend", **known, **changes}))


def fresh(script: str) -> str:
    """An address with this script that nobody has sent anything to before."""
    return f"{script}+{uuid4().hex[:12]}@example.org"


@pytest.mark.parametrize(("script", "answer", "code", "rest"), EXAMPLES)
async def test_each_answer(pretended: Pretended, script: str, answer: Answer, code: str, rest: timedelta) -> None:
    address = fresh(script)
    async with made(pretended.url) as resend:
        outcome, begun = await deliver(resend, address, CONTENT)
    assert (outcome.answer, outcome.code, outcome.not_before, begun) == (answer, code, rest, True)
    assert len(await pretended.requests(sandbox.SERVER, address)) == 1
    assert len(await pretended.store.list_mails(address)) == (answer is ACCEPTED)


@pytest.mark.parametrize(
    ("script", "code"),
    [("unverified_domain", "403-validation_error"), ("invalid_from_address", "422-invalid_from_address")],
)
async def test_a_sender_that_the_notification_names_is_its_own_fault(
    pretended: Pretended, script: str, code: str
) -> None:
    async with made(pretended.url) as resend:
        outcome, _ = await deliver(resend, fresh(script), {**CONTENT, "sender": "them@example.net"})
    assert (outcome.answer, outcome.code) == (MESSAGE, code)


async def test_each_row_decides_one_of_them() -> None:
    decided = {deciding(TABLE, code) for *_, code, _ in EXAMPLES}
    own = {deciding(OWN_SENDER, code) for code in ("403-validation_error", "422-invalid_from_address")}
    assert decided == set(TABLE[:-1])  # no script can ask for the last: test_provider_phases has it
    assert own == set(OWN_SENDER) - set(TABLE)


async def test_arrives_as_it_was_sent(pretended: Pretended) -> None:
    key, address = uuid4(), fresh("anna")
    content = {
        **CONTENT,
        "html": "<p>Hallo</p>",
        "sender": "Jürgen <j@example.com>",
        "reply_to": "answers@example.com",
        "headers": {"list-id": "<news.example.com>", "X-Note": "ü"},
    }
    async with made(pretended.url) as resend:
        outcome, _ = await deliver(resend, address, content, key)
    (mail,) = await pretended.store.list_mails(delivery_key=str(key))
    assert (mail["address"], mail["sender"], mail["subject"]) == (address, "j@example.com", "Grüße")
    assert (mail["text"], mail["html"]) == ("Hallo ☃", "<p>Hallo</p>")
    assert outcome.provider_message_id
    raw = json.loads(await pretended.store.get_raw_mail(mail["id"]))
    assert raw["from"] == "Jürgen <j@example.com>"
    assert raw["reply_to"] == ["answers@example.com"]
    assert raw["headers"] == {"Auto-Submitted": "auto-generated", "List-Id": "<news.example.com>", "X-Note": "ü"}


@pytest.mark.parametrize("script", ["accept-then-hangx1", "accept-then-closex1"])
async def test_an_attempt_without_an_answer_is_answered_by_the_next_and_is_one_mail(
    pretended: Pretended, script: str
) -> None:
    key, address = uuid4(), fresh(script)
    async with made(pretended.url, timeout=0.5 if "hang" in script else 30.0) as resend:
        assert (await deliver(resend, address, CONTENT, key))[0].answer is UNKNOWN
    async with made(pretended.url) as resend:
        outcomes = [(await deliver(resend, address, CONTENT, key, attempt))[0] for attempt in (2, 3)]
    assert [outcome.answer for outcome in outcomes] == [ACCEPTED, ACCEPTED]
    assert len({outcome.provider_message_id for outcome in outcomes}) == 1
    assert len(await pretended.store.list_mails(address)) == 1


async def test_another_body_under_the_same_key_is_refused(pretended: Pretended) -> None:
    key, address = uuid4(), fresh("anna")
    async with made(pretended.url) as resend:
        await deliver(resend, address, CONTENT, key)
        outcome, _ = await deliver(resend, address, {**CONTENT, "text": "other"}, key)
    assert (outcome.answer, outcome.code) == (UNKNOWN, "409-invalid_idempotent_request")
    assert len(await pretended.store.list_mails(address)) == 1


async def test_while_one_is_under_way_another_with_its_key_is_refused(pretended: Pretended) -> None:
    key, address = uuid4(), fresh("hangx1")

    async def under_way() -> bool:
        return bool(await pretended.requests(sandbox.SERVER, address))

    async with made(pretended.url) as resend:
        first = asyncio.create_task(deliver(resend, address, CONTENT, key))
        await eventually(under_way)
        outcome, _ = await deliver(resend, address, CONTENT, key)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert (outcome.answer, outcome.code) == (TRANSIENT, "409-concurrent_idempotent_requests")


@pytest.mark.parametrize(
    "content",
    [
        {**CONTENT, "subject": "two\nlines"},
        {**CONTENT, "sender": "nobody"},
        {**CONTENT, "reply_to": "nobody"},
        {**CONTENT, "text": 1},
        {**CONTENT, "headers": {"Bcc": "them@example.com"}},
        {**CONTENT, "headers": {"X-Note": "a\r\nBcc: them@example.com"}},
    ],
)
async def test_what_is_no_mail_is_not_sent(pretended: Pretended, content: dict[str, object]) -> None:
    async with made(pretended.url) as resend:
        outcome, begun = await deliver(resend, fresh("anna"), content)
    assert (outcome.answer, begun) == (MESSAGE, False)


async def test_a_wrong_key_is_ours_to_mend(pretended: Pretended) -> None:
    async with made(pretended.url, api_key="wrong") as resend:
        outcome, _ = await deliver(resend, fresh("anna"), CONTENT)
    assert (outcome.answer, outcome.code) == (MISCONFIGURED, "403-invalid_api_key")


async def test_a_wrong_address_of_the_api_is_ours_to_mend(pretended: Pretended) -> None:
    async with made(f"{pretended.url}/resend/elsewhere") as resend:
        outcome, _ = await deliver(resend, fresh("anna"), CONTENT)
    assert (outcome.answer, outcome.code) == (MISCONFIGURED, "404-not_found")


@pytest.mark.parametrize(
    ("headers", "body", "status", "name"),
    [
        ({}, b"{}", 422, "missing_required_field"),
        ({}, b'{"from": "a@b.c", "to": ["d@e.f"], "subject": ""}', 401, "missing_api_key"),
        (
            {"Authorization": f"Bearer {sandbox.API_KEY}", "Idempotency-Key": "k" * 257},
            b'{"from": "a@b.c", "to": ["d@e.f"], "subject": ""}',
            400,
            "invalid_idempotency_key",
        ),
    ],
)
async def test_what_the_sandbox_refuses_of_itself(
    pretended: Pretended, headers: dict[str, str], body: bytes, status: int, name: str
) -> None:
    url = f"{pretended.url}/resend/emails"
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        assert (response.status, (await response.json())["name"]) == (status, name)


async def test_no_secret_is_shown() -> None:
    assert "do-not-tell" not in repr(ResendSettings(api_key="do-not-tell", sender="us@example.com"))
