"""The other side's ledgers, of one run of the demo: whatever else is in the database, before or after."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from sandbox.demo.ledgers import Arrival, Sandbox
from sandbox.inbox import Inbox
from sandbox.receiver import Receiver
from sandbox.server import HttpServer
from sandbox.store import Mail, Store

RUN, ENDPOINT, MANY = "demo0123abcd", "500x1+demo0123abcd", 1_001
MAILS = """
INSERT INTO sandbox.mails (delivery_key, address, sender, subject, raw)
SELECT n::text, 'other' || n || '@example.com', '', '', '' FROM generate_series(1, $1::int) AS n
"""
MESSAGES = """
INSERT INTO sandbox.messages (server, address, taken_as, content)
SELECT 'twilio', '+447700900000', 'SM', '{"text": "another day"}' FROM generate_series(1, $1::int)
"""
WEBHOOKS = """
INSERT INTO sandbox.webhooks (name, webhook_id, body, verified, answers)
SELECT $2, n::text, '{"data": {"notification_id": "another", "labels": {"demo": "demo99999999"}}}', false, '{401}'
FROM generate_series(1, $1::int) AS n
"""


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Store(database_url) as opened:
        yield opened


def mail(address: str, key: str | None) -> Mail:
    return Mail(delivery_key=key, address=address, sender="", subject="", text="", html=None, raw=b"")


async def test_a_run_is_counted_whatever_came_before_and_after_it(store: Store) -> None:
    await store.add_mail(mail(f"customer+{RUN}-orders-0@example.com", "a"))
    await store.add_mail(mail(f"customer+{RUN}-orders-0@example.com", None))
    text, device = {"text": f"Your code for {RUN}-codes-0 is 1."}, f"phone+{RUN}-parcels-0"
    await store.add_message("twilio", "+447700900000", text, taken_as="SM1")
    for name in ("first", "second"):
        await store.add_message("fcm", device, {"title": "t"}, taken_as=name, replaces="p")
    body = json.dumps({"data": {"notification_id": "a", "labels": {"demo": RUN}}})
    for status in (500, 204):
        await store.add_webhook(ENDPOINT, "e1", body, verified=True, answer=status)
    for statement, values in ((MAILS, ()), (MESSAGES, ()), (WEBHOOKS, (ENDPOINT,))):
        await store._database.fetch(statement, MANY, *values)

    async with (
        HttpServer(0, [Inbox(store), Receiver(store)]) as server,
        aiohttp.ClientSession() as session,
    ):
        sandbox = Sandbox(session, f"http://127.0.0.1:{server.port}")
        ledgers = await sandbox.read([ENDPOINT, "another"], RUN)
        assert await sandbox.reported([ENDPOINT, "another"], RUN) == {"a"}
        assert await sandbox.asked("nobody@example.com") == 0
    address = f"customer+{RUN}-orders-0@example.com"
    assert sorted(ledgers.named({"SM1": "c"}).arrived, key=str) == sorted(
        [
            Arrival(address, "a"),
            Arrival(address, None),
            Arrival("+447700900000", "c"),
            Arrival(device, "p"),
        ],
        key=str,
    )
    assert ledgers.read == {address: [("", ""), ("", "")]}
    assert ledgers.times[address] == sorted(ledgers.times[address])
    assert (ledgers.events, ledgers.failed_first, ledgers.unverified) == ({"a": 1}, 1, 0)
