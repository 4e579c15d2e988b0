"""The sandbox's webhook receiver: what it believes, what it counts, and how it misbehaves on request."""

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook

from sandbox.receiver import Receiver, verify
from sandbox.server import HttpServer
from sandbox.store import Store

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
BODY = json.dumps({"type": "notification.sent", "data": {"status": "SENT"}})


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(
        self, name: str, webhook_id: str = "msg_1", secret: str = SECRET, body: str = BODY, **changes: str
    ) -> int:
        headers = _signed(webhook_id, secret) | {key.replace("_", "-"): value for key, value in changes.items()}
        async with self._session.post(f"/webhooks/{name}", data=body.encode(), headers=headers) as response:
            return response.status

    async def register(self, name: str, secret: object) -> int:
        async with self._session.put(f"/webhooks/{name}/secret", json={"secret": secret}) as response:
            return response.status

    async def events(self, name: str) -> list[dict[str, Any]]:
        async with self._session.get(f"/webhooks/{name}") as response:
            events: list[dict[str, Any]] = await response.json()
            return events


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[Client]:
    async with (
        Store(database_url) as store,
        HttpServer(0, [Receiver(store)]) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        yield Client(session)


def _signed(webhook_id: str, secret: str, moment: datetime | None = None) -> dict[str, str]:
    moment = moment or datetime.now(UTC)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign(webhook_id, moment, BODY),
    }


async def test_verifies(client: Client) -> None:
    assert await client.register("orders", SECRET) == 204
    assert await client.post("orders") == 204
    (event,) = await client.events("orders")
    assert (event["id"], event["type"], event["body"]) == ("msg_1", "notification.sent", json.loads(BODY))
    assert (event["verified"], event["deliveries"], event["answers"]) == (True, 1, [204])


async def test_takes_everything_without_a_secret(client: Client) -> None:
    assert await client.post("orders", webhook_signature="v1,nonsense") == 204
    (event,) = await client.events("orders")
    assert event["verified"] is None


@pytest.mark.parametrize("body", ["nonsense", "[" * 4000])
async def test_what_is_no_event_does_not_hide_the_others(client: Client, body: str) -> None:
    for webhook_id, sent in (("msg_1", BODY), ("msg_2", body)):
        assert await client.post("orders", webhook_id, body=sent) == 204
    assert [event["body"] for event in await client.events("orders")] == [json.loads(BODY), None]


@pytest.mark.parametrize("signature", ["v1,nonsense", "", "v1", "v1a,AAAA", "nonsense"])
async def test_refuses_what_is_not_signed(client: Client, signature: str) -> None:
    await client.register("orders", SECRET)
    assert await client.post("orders", webhook_signature=signature) == 401
    assert [event["verified"] for event in await client.events("orders")] == [False]


async def test_one_bad_signature_is_remembered(client: Client) -> None:
    await client.register("orders", SECRET)
    statuses = [await client.post("orders", secret=secret) for secret in (SECRET, OTHER, SECRET)]
    assert statuses == [204, 401, 204]
    (event,) = await client.events("orders")
    assert (event["verified"], event["answers"]) == (False, statuses)


async def test_counts_what_comes_again(client: Client) -> None:
    for webhook_id in ("msg_1", "msg_2", "msg_1"):
        await client.post("orders", webhook_id)
    assert [(event["id"], event["deliveries"]) for event in await client.events("orders")] == [
        ("msg_1", 2),
        ("msg_2", 1),
    ]
    assert await client.events("others") == []


@pytest.mark.parametrize("name", ["500x2+orders", "orders?script=500x2"])
async def test_script_is_played_for_each_event(client: Client, name: str) -> None:
    statuses = [await client.post(name, webhook_id) for webhook_id in ("msg_1", "msg_2", "msg_1", "msg_1", "msg_2")]
    assert statuses == [500, 500, 500, 204, 500]
    (first, second) = await client.events(name.partition("?")[0])
    assert (first["answers"], second["answers"]) == ([500, 500, 204], [500, 500])


async def test_gone(client: Client) -> None:
    assert [await client.post("410") for _ in range(2)] == [410, 410]


async def test_closes(client: Client) -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post("accept-then-close")
    (event,) = await client.events("accept-then-close")
    assert event["answers"] == [0]


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_!", "whsec_AAAA", 5, None])
async def test_secret_that_is_none(client: Client, secret: object) -> None:
    assert await client.register("orders", secret) == 400


@pytest.mark.parametrize(("age", "expected"), [(300, True), (301, False), (-300, True), (-301, False)])
def test_timestamp_must_be_of_now(age: int, expected: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    headers = _signed("msg_1", SECRET, now - timedelta(seconds=age))
    assert verify(SECRET, headers, BODY.encode(), now.timestamp()) == expected


def test_any_of_several_signatures() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    headers = _signed("msg_1", SECRET, now)
    headers["webhook-signature"] = f"{Webhook(OTHER).sign('msg_1', now, BODY)} {headers['webhook-signature']}"
    assert verify(SECRET, headers, BODY.encode(), now.timestamp())
    assert verify(OTHER, headers, BODY.encode(), now.timestamp())
    assert not verify(SECRET, headers, BODY.encode() + b" ", now.timestamp())
    assert not verify(SECRET, headers | {"webhook-id": "msg_2"}, BODY.encode(), now.timestamp())
