"""Text messages over Twilio, against the sandbox's: each row of the table decides an answer that came over the wire."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sandbox import twilio as sandbox
from sandbox.postgres import Postgres
from services.worker.measured import shown_code
from services.worker.providers import Answer
from services.worker.providers.twilio import Twilio
from services.worker.providers.twilio_codes import QUEUE_REST, TABLE
from services.worker.providers.twilio_settings import TwilioSettings
from shared.telemetry import metrics
from tests.pretended import Pretended, deciding, deliver, pretending

# One server for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCEPTED, MESSAGE, ADDRESS, MISCONFIGURED, THROTTLED, TRANSIENT, UNKNOWN = Answer
NUMBER = "+447700900123"
SENDER = "+15005550006"
CONTENT = {"text": "Hallo Welt ☃"}
NONE = timedelta()
SOON = timedelta(seconds=2)

# Whom it is sent to, by whom, what comes of it, and for how long it rests.
EXAMPLES = [
    (NUMBER, SENDER, ACCEPTED, "201", NONE),
    ("+15005550004", SENDER, ADDRESS, "400-21610", NONE),
    ("+15005550001", SENDER, ADDRESS, "400-21211", NONE),
    ("+15005550009", SENDER, ADDRESS, "400-21614", NONE),
    ("+12025550110", SENDER, ADDRESS, "400-21614", NONE),  # `bounce`
    (NUMBER, "E21635", ADDRESS, "400-21635", NONE),
    ("+15005550002", SENDER, MESSAGE, "400-21612", NONE),
    ("+15005550003", SENDER, MESSAGE, "400-21408", NONE),
    (NUMBER, "E21602", MESSAGE, "400-21602", NONE),
    ("+12025550120", SENDER, MESSAGE, "400-21617", NONE),  # `reject`
    (NUMBER, "+15005550008", TRANSIENT, "400-21611", QUEUE_REST),
    (NUMBER, "E21608", MISCONFIGURED, "400-21608", NONE),
    (NUMBER, "+15005550007", MISCONFIGURED, "400-21606", NONE),
    (NUMBER, "+15005550001", MISCONFIGURED, "400-21212", NONE),
    (NUMBER, "E21659", MISCONFIGURED, "400-21659", NONE),
    (NUMBER, "E21660", MISCONFIGURED, "400-21660", NONE),
    (NUMBER, "E21701", MISCONFIGURED, "400-21701", NONE),
    (NUMBER, "E21703", MISCONFIGURED, "400-21703", NONE),
    (NUMBER, "E20003", MISCONFIGURED, "401-20003", NONE),
    (NUMBER, "E20005", MISCONFIGURED, "401-20005", NONE),
    (NUMBER, "E20404", MISCONFIGURED, "404-20404", NONE),
    ("+12025550130", SENDER, THROTTLED, "429-20429", SOON),  # `throttle`
    (NUMBER, "E20500", UNKNOWN, "500-20500", NONE),
    # What no row names, by its class.
    (NUMBER, "E29999", MESSAGE, "400-29999", NONE),
    (NUMBER, "E302", MISCONFIGURED, "302", NONE),
    (NUMBER, "E403", MISCONFIGURED, "403", NONE),
    (NUMBER, "E408", TRANSIENT, "408", NONE),
    ("+12025550140", SENDER, TRANSIENT, "425", NONE),
    (NUMBER, "E429", THROTTLED, "429", SOON),
    (NUMBER, "E422", MESSAGE, "422", NONE),
    ("+12025550150", SENDER, UNKNOWN, "503", NONE),  # `down`
    (NUMBER, "E600", UNKNOWN, "600", NONE),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pretended(postgres: Postgres) -> AsyncIterator[Pretended]:
    async with pretending(postgres, lambda store: [sandbox.Twilio(store)]) as pretended:
        yield pretended


def made(server: str, **changes: Any) -> Twilio:
    known = {"account_sid": sandbox.ACCOUNT_SID, "secret": sandbox.AUTH_TOKEN, "sender": SENDER, "timeout": 30.0}
    return Twilio(TwilioSettings(**{"url": f"{server}/twilio", **known, **changes}))


@pytest.mark.parametrize(("address", "sender", "answer", "code", "rest"), EXAMPLES)
async def test_each_answer(
    pretended: Pretended, address: str, sender: str, answer: Answer, code: str, rest: timedelta
) -> None:
    before = len(await pretended.requests(sandbox.SERVER, address))
    async with made(pretended.url, sender=sender) as twilio:
        outcome, begun = await deliver(twilio, address, CONTENT)
    assert (outcome.answer, outcome.code, outcome.not_before, begun) == (answer, code, rest, True)
    assert outcome.opted_out == (code == "400-21610")
    assert len(await pretended.requests(sandbox.SERVER, address)) == before + 1


async def test_each_row_decides_one_of_them() -> None:
    assert {deciding(TABLE, code) for *_, code, _ in EXAMPLES} == set(TABLE)


async def test_arrives_as_it_was_sent(pretended: Pretended) -> None:
    async with made(pretended.url) as twilio:
        outcome, _ = await deliver(twilio, "+447700900001", CONTENT)
    (message,) = await pretended.store.list_messages(sandbox.SERVER, "+447700900001")
    assert message["content"] == {"from": SENDER, "text": CONTENT["text"]}
    assert outcome.provider_message_id == message["taken_as"]


@pytest.mark.parametrize("changes", [{"sender": "MG" + "0" * 32}, {"api_key_sid": sandbox.API_KEY_SID}])
async def test_by_a_messaging_service_and_with_an_api_key(pretended: Pretended, changes: dict[str, str]) -> None:
    async with made(pretended.url, **changes) as twilio:
        outcome, _ = await deliver(twilio, "+447700900002", CONTENT)
    assert outcome.answer is Answer.ACCEPTED
    message = (await pretended.store.list_messages(sandbox.SERVER, "+447700900002"))[-1]
    assert message["content"]["from"] == changes.get("sender", SENDER)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"secret": "wrong"}, "401-20003"), ({"account_sid": "AC" + "0" * 32}, "404-20404"), ({}, "404-20404")],
)
async def test_wrong_credentials_are_ours_to_mend(pretended: Pretended, changes: dict[str, Any], code: str) -> None:
    async with made(pretended.url if changes else f"{pretended.url}/twilio/elsewhere", **changes) as twilio:
        outcome, _ = await deliver(twilio, "+447700900003", CONTENT)
    assert (outcome.answer, outcome.code) == (Answer.MISCONFIGURED, code)
    assert not await pretended.store.list_messages(sandbox.SERVER, "+447700900003")


@pytest.mark.parametrize("content", [{}, {"text": ""}, {"text": 1}, {"text": "\ud800"}])
async def test_what_is_no_text_is_not_sent(pretended: Pretended, content: dict[str, object]) -> None:
    async with made(pretended.url) as twilio:
        outcome, begun = await deliver(twilio, NUMBER, content)
    assert (outcome.answer, begun) == (Answer.PERMANENT_MESSAGE, False)


async def test_a_code_that_no_row_names_is_logged_and_counted_as_other(pretended: Pretended) -> None:
    async with made(pretended.url, sender="E29999") as twilio:
        with capture_logs() as lines:
            outcome, _ = await deliver(twilio, NUMBER, CONTENT)
    said = {"event": "provider.answer_unlisted", "log_level": "warning", "provider": "twilio", "code": "400-29999"}
    assert said in lines
    assert shown_code("twilio", outcome.code) == metrics.OTHER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("account_sid", "AC1"),
        ("account_sid", sandbox.ACCOUNT_SID + "/../.."),
        ("api_key_sid", "AC" + "0" * 32),
        ("sender", "a name that is too long"),
        ("url", "http://api.twilio.com"),
    ],
)
async def test_settings_that_cannot_work_are_named_without_their_value(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        made("http://127.0.0.1", **{field: value})
    assert value not in str(refused.value)


async def test_no_secret_is_shown() -> None:
    settings = TwilioSettings(account_sid=sandbox.ACCOUNT_SID, secret="do-not-tell", sender=SENDER)
    assert "do-not-tell" not in repr(settings)
