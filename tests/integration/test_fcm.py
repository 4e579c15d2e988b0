"""Push messages over FCM, against the sandbox's: each row of its tables, and tokens that are asked for when needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from sandbox import fcm as sandbox
from sandbox import service_account
from sandbox.postgres import Postgres
from services.worker.providers import Answer, Outcome, fcm_tokens
from services.worker.providers.answers import CLASSES
from services.worker.providers.fcm import Fcm
from services.worker.providers.fcm_codes import AWAY_REST, QUOTA_REST, TABLE, TOKENS
from services.worker.providers.fcm_settings import FcmSettings, ServiceAccount
from tests.pretended import Pretended, deciding, deliver, pretending
from tests.raw_http import answer, raw_server
from tests.waiting import eventually

# One server for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCEPTED, MESSAGE, ADDRESS, MISCONFIGURED, THROTTLED, TRANSIENT, UNKNOWN = Answer
CONTENT = {"title": "Grüße", "body": "Hallo ☃", "data": {"screen": "parcel"}}
NONE = timedelta()
SECOND = timedelta(seconds=1)
ACCOUNT = service_account.make("https://127.0.0.1/token")

# What is written into the device's token, what comes of it, for how long it rests, and what decides besides the code.
EXAMPLES = [
    ("phone", ACCEPTED, "200", NONE, ""),
    ("unregistered", ADDRESS, "404-UNREGISTERED", NONE, ""),
    ("bounce", ADDRESS, "404-UNREGISTERED", NONE, ""),
    ("invalid_token", ADDRESS, "400-INVALID_ARGUMENT", NONE, "registration token"),
    ("sender_id_mismatch", ADDRESS, "403-SENDER_ID_MISMATCH", NONE, ""),
    ("invalid_field", MESSAGE, "400-field.INVALID_ARGUMENT", NONE, ""),
    ("invalid_argument", MESSAGE, "400-INVALID_ARGUMENT", NONE, ""),
    ("third_party_auth_error", MISCONFIGURED, "401-THIRD_PARTY_AUTH_ERROR", NONE, ""),
    ("apns_auth_error", MISCONFIGURED, "401-APNS_AUTH_ERROR", NONE, ""),
    ("unauthenticated", MISCONFIGURED, "401-rpc.UNAUTHENTICATED", NONE, ""),
    ("permission_denied", MISCONFIGURED, "403-rpc.PERMISSION_DENIED", NONE, ""),
    ("not_found", MISCONFIGURED, "404-rpc.NOT_FOUND", NONE, ""),
    ("device_quota_exceeded", TRANSIENT, "429-QUOTA_EXCEEDED", QUOTA_REST, "device"),
    ("quota_exceeded", THROTTLED, "429-QUOTA_EXCEEDED", QUOTA_REST, ""),
    ("throttle", THROTTLED, "429-QUOTA_EXCEEDED", SECOND, ""),
    ("429", THROTTLED, "429", QUOTA_REST, ""),
    ("internal", UNKNOWN, "500-INTERNAL", AWAY_REST, ""),
    ("unavailable", TRANSIENT, "503-UNAVAILABLE", AWAY_REST, ""),
    ("down", TRANSIENT, "503-UNAVAILABLE", SECOND, ""),
    ("503", TRANSIENT, "503", AWAY_REST, ""),
    # What no row names, by its class. A page that is not FCM's says nothing of a device.
    ("302", MISCONFIGURED, "302", NONE, ""),
    ("404", MISCONFIGURED, "404", NONE, ""),
    ("408", TRANSIENT, "408", NONE, ""),
    ("425", TRANSIENT, "425", NONE, ""),
    ("400", MESSAGE, "400", NONE, ""),
    ("413", MESSAGE, "413", NONE, ""),
    ("500", UNKNOWN, "500", NONE, ""),
]


@dataclass(frozen=True, slots=True)
class Google:
    """The sandbox's, and its server, to ask what it did."""

    pretended: Pretended
    fcm: sandbox.Fcm


@asynccontextmanager
async def google_with(postgres: Postgres, **settings: int) -> AsyncIterator[Google]:
    made: list[sandbox.Fcm] = []

    def make(store: Any) -> list[sandbox.Fcm]:
        made.append(sandbox.Fcm(store, ACCOUNT, **settings))
        return made

    async with pretending(postgres, make) as pretended:
        yield Google(pretended, made[0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def google(postgres: Postgres) -> AsyncIterator[Google]:
    async with google_with(postgres) as google:
        yield google


def settings(server: str, **changes: Any) -> FcmSettings:
    account = replace(ServiceAccount.parse(ACCOUNT), token_url=f"{server}/fcm/token")
    known: dict[str, Any] = {"account": account, "url": f"{server}/fcm", "timeout": 30.0, "token_timeout": 30.0}
    return FcmSettings(**known | changes)


def fresh(script: str) -> str:
    """A token with this script that nobody has pushed anything to before."""
    return f"{script}+{uuid4().hex[:12]}"


@pytest.mark.parametrize(("script", "answer", "code", "rest", "words"), EXAMPLES)
async def test_each_answer(google: Google, script: str, answer: Answer, code: str, rest: timedelta, words: str) -> None:
    device = fresh(script)
    async with Fcm(settings(google.pretended.url)) as fcm:
        outcome, begun = await deliver(fcm, device, CONTENT)
    assert (outcome.answer, outcome.code, outcome.not_before, begun) == (answer, code, rest, True)
    assert len(await google.pretended.requests(sandbox.SERVER, device)) == 1


async def test_each_row_decides_one_of_them() -> None:
    # No script can ask for the last: test_provider_phases has it. FCM's own row of 429 hides the protocol's.
    hidden = {row for row in CLASSES if row.status == "429"}
    decided = {deciding(TABLE, code, words) for _, _, code, _, words in EXAMPLES}
    assert decided == set(TABLE[:-1]) - hidden


async def test_arrives_as_it_was_sent_and_names_what_it_is_about(google: Google) -> None:
    key, device = uuid4(), fresh("phone")
    async with Fcm(settings(google.pretended.url)) as fcm:
        outcome, _ = await deliver(fcm, device, CONTENT, key)
    (push,) = await google.pretended.store.list_messages(sandbox.SERVER, device)
    assert (push["content"], push["replaces"]) == (CONTENT, str(key))
    assert outcome.provider_message_id == push["taken_as"]


async def test_a_push_that_comes_twice_takes_its_own_place(google: Google) -> None:
    key, device = uuid4(), fresh("accept-then-closex1")
    async with Fcm(settings(google.pretended.url)) as fcm:
        first, _ = await deliver(fcm, device, CONTENT, key)
        second, _ = await deliver(fcm, device, CONTENT, key, 2)
    assert (first.answer, second.answer) == (UNKNOWN, ACCEPTED)
    (push,) = await google.pretended.store.list_messages(sandbox.SERVER, device)
    assert push["deliveries"] == 2


@pytest.mark.parametrize("content", [{}, {"title": 1}, {"title": "t", "data": {"a": 1}}, {"title": "t", "data": "x"}])
async def test_what_is_no_push_is_not_sent(google: Google, content: dict[str, object]) -> None:
    async with Fcm(settings(google.pretended.url)) as fcm:
        outcome, begun = await deliver(fcm, fresh("phone"), content)
    assert (outcome.answer, begun) == (MESSAGE, False)


# --- access tokens


async def test_many_that_need_a_token_at_once_ask_for_one(google: Google) -> None:
    before = google.fcm.given
    async with Fcm(settings(google.pretended.url)) as fcm:
        outcomes = await asyncio.gather(*(deliver(fcm, fresh("phone"), CONTENT) for _ in range(20)))
    assert {outcome.answer for outcome, _ in outcomes} == {ACCEPTED}
    assert google.fcm.given == before + 1


async def test_a_token_that_was_revoked_is_asked_for_anew_by_the_next_attempt(google: Google) -> None:
    device = fresh("phone")
    async with Fcm(settings(google.pretended.url)) as fcm:
        await deliver(fcm, device, CONTENT)
        google.fcm.revoke()
        answers = [(await deliver(fcm, device, CONTENT))[0].answer for _ in range(2)]
    assert answers == [TRANSIENT, ACCEPTED]
    assert await google.pretended.requests(sandbox.SERVER, device) == ["accept", "401-unauthenticated", "accept"]


async def test_a_token_that_never_worked_is_ours_to_mend(google: Google) -> None:
    device = fresh("unauthenticated")
    async with Fcm(settings(google.pretended.url)) as fcm:
        answers = [(await deliver(fcm, device, CONTENT))[0].answer for _ in range(2)]
    assert answers == [MISCONFIGURED, MISCONFIGURED]


async def test_a_token_is_renewed_before_it_ends_and_nobody_waits_for_that(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(fcm_tokens, "tick", lambda: now)
    async with Fcm(settings(google.pretended.url)) as fcm:
        await deliver(fcm, fresh("phone"), CONTENT)
        first, given = await fcm.tokens.get(), google.fcm.given
        now += sandbox.LIFETIME - fcm_tokens.EARLY
        assert await fcm.tokens.get() == first  # the old one is good meanwhile
        await eventually(lambda: google.fcm.given == given + 1)

        async def renewed() -> bool:
            return await fcm.tokens.get() != first

        await eventually(renewed)
        assert google.fcm.given == given + 1


async def test_a_renewal_that_fails_costs_nothing_while_the_old_token_is_good(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(fcm_tokens, "tick", lambda: now)
    said = b'{"access_token": "old", "expires_in": 3600}'
    url = google.pretended.url
    async with raw_token_server(said) as (account, steps), Fcm(settings(url, account=account)) as fcm:
        assert await fcm.tokens.get() == "old"
        steps[:] = [answer(500)]
        now += 3_500
        assert await fcm.tokens.get() == "old"
        now += 99
        assert await fcm.tokens.get() == "old"
        now += 2
        with pytest.raises(fcm_tokens.NoToken):
            await fcm.tokens.get()


@asynccontextmanager
async def raw_token_server(body: bytes, status: int = 200) -> AsyncIterator[tuple[ServiceAccount, list[bytes]]]:
    """Whose path is not `/token`, so that it answers as it is told to."""
    steps: list[bytes] = [answer(status, body)]
    async with raw_server() as server:
        server.steps = steps
        yield replace(ServiceAccount.parse(ACCOUNT), token_url=f"{server.url}/tokens"), steps


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b'{"error": "invalid_grant"}', Outcome(MISCONFIGURED, "token-400-invalid_grant")),
        (401, b'{"error": "invalid_client"}', Outcome(MISCONFIGURED, "token-401-invalid_client")),
        (400, b"<html>", Outcome(MISCONFIGURED, "token-400")),
        (403, b"", Outcome(MISCONFIGURED, "token-403")),
        (302, b"", Outcome(MISCONFIGURED, "token-302")),
        (429, b"", Outcome(THROTTLED, "token-429")),
        (500, b"", Outcome(TRANSIENT, "token-500")),
        (503, b"", Outcome(TRANSIENT, "token-503")),
        (200, b"{}", Outcome(TRANSIENT, "token-200")),
        (200, b'{"access_token": "two\\r\\nlines"}', Outcome(TRANSIENT, "token-200")),
    ],
)
async def test_without_a_token_nothing_was_sent(google: Google, status: int, body: bytes, expected: Outcome) -> None:
    device, url = fresh("phone"), google.pretended.url
    async with raw_token_server(body, status) as (account, _), Fcm(settings(url, account=account)) as fcm:
        outcome, begun = await deliver(fcm, device, CONTENT)
    assert (outcome, begun) == (expected, False)
    assert await google.pretended.requests(sandbox.SERVER, device) == []


async def test_each_row_of_the_tokens_table_decides_one_of_them() -> None:
    told = ("200", "400-invalid_grant", "401-invalid_client", "400", "403", "302", "429", "500")
    assert {deciding(TOKENS, code) for code in told} == set(TOKENS)


async def test_another_key_gets_no_token(google: Google) -> None:
    url = f"{google.pretended.url}/fcm/token"
    other = replace(ServiceAccount.parse(service_account.make("https://127.0.0.1/token")), token_url=url)
    async with Fcm(settings(google.pretended.url, account=other)) as fcm:
        outcome, begun = await deliver(fcm, fresh("phone"), CONTENT)
    assert (outcome, begun) == (Outcome(MISCONFIGURED, "token-400-invalid_grant"), False)


async def test_a_token_that_has_ended_is_refused(postgres: Postgres) -> None:
    async with google_with(postgres, lifetime=0) as google, Fcm(settings(google.pretended.url)) as fcm:
        outcome, _ = await deliver(fcm, fresh("phone"), CONTENT)
    assert (outcome.answer, outcome.code) == (MISCONFIGURED, "401-rpc.UNAUTHENTICATED")


async def test_another_project_is_ours_to_mend(google: Google) -> None:
    async with Fcm(settings(google.pretended.url, project="other")) as fcm:
        outcome, _ = await deliver(fcm, fresh("phone"), CONTENT)
    assert (outcome.answer, outcome.code) == (MISCONFIGURED, "403-rpc.PERMISSION_DENIED")


async def test_while_it_is_down_nothing_is_taken_and_all_may_be_sent_again(google: Google) -> None:
    device, url = fresh("phone"), f"{google.pretended.url}/fcm/outage"
    async with Fcm(settings(google.pretended.url)) as fcm, aiohttp.ClientSession() as session:
        answers = []
        for seconds in (60, 0):
            async with session.put(url, json={"seconds": seconds}) as response:
                assert response.status == 204
            answers.append((await deliver(fcm, device, CONTENT))[0].answer)
    assert answers == [TRANSIENT, ACCEPTED]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "mk-text", '{"private_key": "mk-text"}', ACCOUNT.replace("https", "http")]
)
async def test_credentials_that_are_none_are_told_without_a_word_of_them(text: str) -> None:
    text = text.replace("127.0.0.1", "mk-host.example")
    with pytest.raises(ValueError, match=r"^credentials: ") as refused:
        ServiceAccount.parse(text)
    assert "mk-" not in str(refused.value)


async def test_a_key_is_read_once_by_a_start_that_asks_twice() -> None:
    assert ServiceAccount.parse(ACCOUNT).signer is ServiceAccount.parse(ACCOUNT).signer
    other = ServiceAccount.parse(service_account.make("https://127.0.0.1/token"))
    assert other.signer.sign(b"text") != ServiceAccount.parse(ACCOUNT).signer.sign(b"text")


async def test_no_secret_is_shown() -> None:
    shown = repr(settings("http://127.0.0.1"))
    assert "PRIVATE KEY" not in shown
    assert "signer" not in shown
