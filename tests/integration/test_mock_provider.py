"""The mock provider and the sandbox's ledger: one delivery per delivery key, whatever happens on the way."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from aiohttp import web

from sandbox.mock_provider import MockProvider
from sandbox.server import HttpServer
from sandbox.store import Store
from services.worker.providers import Answer, Handover, Message, Outcome
from services.worker.providers.mock import Mock, MockSettings

CONTENT = {"text": "Hallo"}


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Store(database_url) as store:
        yield store


@pytest.fixture
async def server(store: Store) -> AsyncIterator[HttpServer]:
    async with HttpServer(0, [MockProvider(store)]) as server:
        yield server


@pytest.fixture
async def mock(server: HttpServer) -> AsyncIterator[Mock]:
    async with Mock(_settings(server.port), "SMS") as mock:
        yield mock


def _settings(port: int, timeout: float = 30) -> MockSettings:
    return MockSettings(url=f"http://127.0.0.1:{port}/", timeout=timeout)


async def _deliver(
    mock: Mock, address: str = "+15550100", key: UUID | None = None, attempt: int = 1
) -> tuple[Outcome, bool]:
    handover = Handover()
    outcome = await mock.deliver(Message(key or uuid4(), attempt, address, CONTENT), handover)
    return outcome, handover.begun


async def test_delivers(mock: Mock, store: Store) -> None:
    key = uuid4()
    outcome, begun = await _deliver(mock, key=key)
    assert (outcome, begun) == (Outcome(Answer.ACCEPTED, "200", f"mock-{key}"), True)
    (delivery,) = await store.list_mock_deliveries(key=key)
    assert (delivery["channel"], delivery["address"], delivery["content"]) == ("SMS", "+15550100", CONTENT)
    (request,) = await store.list_requests("mock")
    assert (request["delivery_key"], request["attempt"], request["action"]) == (str(key), 1, "accept")


async def test_deduplicates(mock: Mock, store: Store) -> None:
    key = uuid4()
    outcomes = await asyncio.gather(*(_deliver(mock, key=key, attempt=number) for number in range(1, 9)))
    assert {outcome.provider_message_id for outcome, _ in outcomes} == {f"mock-{key}"}
    (delivery,) = await store.list_mock_deliveries()
    assert delivery["deliveries"] == 8
    assert len(await store.list_requests("mock")) == 8


@pytest.mark.parametrize(
    ("address", "answer", "code", "kept"),
    [
        ("invalid-token", Answer.PERMANENT_ADDRESS, "422", 0),
        ("invalid@example.org", Answer.PERMANENT_ADDRESS, "422", 0),
        ("bounce@example.org", Answer.PERMANENT_ADDRESS, "422", 0),
        ("reject@example.org", Answer.PERMANENT_MESSAGE, "400", 0),
        ("413@example.org", Answer.PERMANENT_MESSAGE, "413", 0),
        ("401@example.org", Answer.MISCONFIGURED, "401", 0),
        ("302@example.org", Answer.MISCONFIGURED, "302", 0),
        ("408@example.org", Answer.TRANSIENT, "408", 0),
        ("425@example.org", Answer.TRANSIENT, "425", 0),
        ("500@example.org", Answer.UNKNOWN, "500", 0),
        ("502@example.org", Answer.UNKNOWN, "502", 0),
        ("503@example.org", Answer.UNKNOWN, "503", 0),
        ("504@example.org", Answer.UNKNOWN, "504", 0),
        ("hang@example.org", Answer.UNKNOWN, "answer-timeout", 0),
        ("close@example.org", Answer.UNKNOWN, "answer-closed", 0),
        ("accept-then-hang@example.org", Answer.UNKNOWN, "answer-timeout", 1),
        ("accept-then-close@example.org", Answer.UNKNOWN, "answer-closed", 1),
    ],
)
async def test_rehearsal(server: HttpServer, store: Store, address: str, answer: Answer, code: str, kept: int) -> None:
    async with Mock(_settings(server.port, timeout=0.5 if "timeout" in code else 30), "SMS") as mock:
        outcome, begun = await _deliver(mock, address)
    assert (outcome.answer, outcome.code, begun) == (answer, code, True)
    assert len(await store.list_mock_deliveries(address)) == kept
    assert len(await store.list_requests("mock", address)) == 1


async def test_throttled(mock: Mock) -> None:
    outcome, _ = await _deliver(mock, "429@example.org")
    assert outcome == Outcome(Answer.THROTTLED, "429", not_before=timedelta(seconds=1))


async def test_fails_twice_then_accepts(mock: Mock, store: Store) -> None:
    key = uuid4()
    answers = [(await _deliver(mock, "425x2+anna@example.org", key, number))[0].answer for number in (1, 2, 3)]
    assert answers == [Answer.TRANSIENT, Answer.TRANSIENT, Answer.ACCEPTED]


@pytest.mark.parametrize("address", ["425x2+token-1", "+12025550142"])
async def test_tokens_and_numbers_rehearse_too(mock: Mock, store: Store, address: str) -> None:
    key = uuid4()
    answers = [(await _deliver(mock, address, key, number))[0].answer for number in (1, 2, 3)]
    assert answers == [Answer.TRANSIENT, Answer.TRANSIENT, Answer.ACCEPTED]
    assert len(await store.list_mock_deliveries(address)) == 1


async def test_a_number_can_be_one_that_takes_nothing(mock: Mock) -> None:
    assert (await _deliver(mock, "+12025550110"))[0].answer is Answer.PERMANENT_ADDRESS


async def test_some_fail_by_chance(store: Store) -> None:
    provider = MockProvider(store, transient_rate=0.5, dice=random.Random(7))
    async with HttpServer(0, [provider]) as server, Mock(_settings(server.port), "PUSH") as mock:
        answers = [(await _deliver(mock))[0].answer for _ in range(40)]
    assert set(answers) == {Answer.ACCEPTED, Answer.TRANSIENT}
    assert len(await store.list_mock_deliveries()) == answers.count(Answer.ACCEPTED)


async def test_nobody_listens() -> None:
    async with Mock(_settings(1), "SMS") as mock:
        outcome, begun = await _deliver(mock)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "connect-refused", False)


async def test_content_that_is_no_json(mock: Mock) -> None:
    handover = Handover()
    outcome = await mock.deliver(Message(uuid4(), 1, "+15550100", {"text": b"bytes"}), handover)
    assert (outcome.answer, handover.begun) == (Answer.PERMANENT_MESSAGE, False)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"delivery_key": "1"}'])
async def test_what_is_no_delivery(server: HttpServer, body: bytes) -> None:
    url = f"http://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession() as session, session.post(f"{url}/mock/deliver", data=body) as response:
        assert response.status == 400
    async with aiohttp.ClientSession() as session, session.get(f"{url}/mock/deliveries?delivery_key=1") as response:
        assert response.status == 400


async def test_ledger_can_be_read(mock: Mock, server: HttpServer) -> None:
    key = uuid4()
    await _deliver(mock, key=key)
    url = f"http://127.0.0.1:{server.port}/mock/deliveries?delivery_key={key}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        (delivery,) = await response.json()
    assert (delivery["delivery_key"], delivery["deliveries"]) == (str(key), 1)


Answering = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Mock]]


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    """A provider of which the test writes the other side."""
    async with AsyncExitStack() as stack:

        async def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Mock:
            class Service:
                def routes(self) -> list[web.RouteDef]:
                    return [web.post("/mock/deliver", handler)]

            server = await stack.enter_async_context(HttpServer(0, [Service()]))
            mock = Mock(_settings(server.port), "SMS")
            await stack.enter_async_context(mock)
            return mock

        yield answering


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b"\xff", b'"id"'])
async def test_accepted_whatever_the_body(answering: Answering, answer: bytes) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=answer, content_type="application/json")

    outcome, _ = await _deliver(await answering(handler))
    assert outcome == Outcome(Answer.ACCEPTED, "200")


async def test_accepted_though_the_answer_is_cut(answering: Answering) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport
        request.transport.close()
        return response

    outcome, _ = await _deliver(await answering(handler))
    assert outcome == Outcome(Answer.ACCEPTED, "200")


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [(None, 30), ("7", 7), ("Wed, 21 Oct 2026 07:28:00 GMT", 30), ("-5", 30), ("9" * 500, 86_400), ("٣", 30)],
)
async def test_retry_after(answering: Answering, retry_after: str | None, seconds: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": retry_after} if retry_after else {})

    outcome, _ = await _deliver(await answering(handler))
    assert outcome.not_before == timedelta(seconds=seconds)


async def test_one_request_per_attempt(answering: Answering) -> None:
    """A connection that was kept and is found closed: the library must not send again by itself."""
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(await request.json())
        if len(seen) == 2:
            assert request.transport
            request.transport.abort()
        return web.json_response({"message_id": "1"})

    mock = await answering(handler)
    answers = [(await _deliver(mock))[0].answer for _ in range(3)]
    assert answers == [Answer.ACCEPTED, Answer.UNKNOWN, Answer.ACCEPTED]
    assert len(seen) == 3
