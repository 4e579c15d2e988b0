"""What the inbox page asks of the database: page by page, each thing once, and by indexes however much there is."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg

from sandbox import arrivals
from sandbox.store import Mail, Row, Store, sql
from tests.plans import explain

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 2_000
# Of each kind one a second. What is refused has the same times.
FILL = """
INSERT INTO sandbox.mails (address, sender, subject, text, raw, received_at)
SELECT 'anna@example.org', '', 'Order ' || n, '', '', at FROM sandbox.moments;
INSERT INTO sandbox.messages (server, address, taken_as, content, received_at)
SELECT server, '+44', n, '{"text": "Your code"}', at FROM sandbox.moments, unnest(ARRAY['twilio', 'fcm']) AS server;
INSERT INTO sandbox.webhooks (name, webhook_id, body, answers, received_at)
SELECT 'up', n, '{}', '{204}', at FROM sandbox.moments;
INSERT INTO sandbox.mock_deliveries (delivery_key, channel, address, content, received_at)
SELECT gen_random_uuid(), 'PUSH', 'phone', '{}', at FROM sandbox.moments;
INSERT INTO sandbox.requests (server, address, action, received_at)
SELECT 'smtp', 'anna@example.org', CASE n % 5 WHEN 0 THEN '451' ELSE 'accept' END, at FROM sandbox.moments;
"""
KINDS = ("mail", "sms", "push", "webhook", "refused")


async def fill(connection: "asyncpg.Connection[asyncpg.Record]", count: int) -> None:
    await connection.execute("TRUNCATE sandbox.mails, sandbox.messages, sandbox.mock_deliveries, sandbox.webhooks")
    await connection.execute("CREATE TABLE sandbox.moments (n int, at timestamptz)")
    moments = [(number, NOW - number * timedelta(seconds=1)) for number in range(count)]
    await connection.copy_records_to_table("moments", schema_name="sandbox", records=moments)
    await connection.execute(FILL + "DROP TABLE sandbox.moments")


async def walked(store: Store, kind: str | None, containing: str | None = None) -> list[Row]:
    found: list[Row] = []
    page = await store.list_arrivals(kind, containing, None)
    while page and len(found) < MANY:
        found += page[:50]
        page = await store.list_arrivals(kind, containing, (found[-1]["received_at"], found[-1]["ref"]))
    return found


async def test_pages_have_everything_once_and_read_little_however_much_there_is(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    async with Store(database_url) as store:
        await fill(connection, 60)  # five at each time, so that pages end among them
        everything = await walked(store, None)
        assert len({row["ref"] for row in everything}) == len(everything) == 5 * 60
        assert everything == sorted(everything, key=lambda row: row["received_at"], reverse=True)
        assert [len(await walked(store, kind)) for kind in KINDS] == [60, 60, 120, 60, 12]
        assert {row["title"] for row in await walked(store, None, "order 7")} == {"Order 7"}

        await fill(connection, MANY)
        await connection.execute("ANALYZE")
        deep = (NOW - timedelta(seconds=MANY * 3 / 4), "mail-1")
        for kind in (None, *KINDS):
            for before in ((None, None), deep):
                for generic in (False, True):
                    plan = await explain(connection, sql["list_arrivals"], [kind, None, *before], generic=generic)
                    assert plan.buffers < 60, (kind, before, generic, str(plan))
                    assert plan.sorted_rows() <= 5 * 51, (kind, before, generic, str(plan))
    await connection.close()


async def test_a_long_event_is_told_as_the_event_that_it_is(database_url: str) -> None:
    data = {"channel": "EMAIL", "labels": {f"label-{number}": "x" * 250 for number in range(64)}}
    async with Store(database_url) as store:
        await store.add_webhook("up", "1", json.dumps({"data": data, "type": "sent"}), verified=None, answer=204)
        (row,) = await store.list_arrivals("webhook", None, None)
    line = arrivals.line(row)
    assert (line["title"], line["preview"]) == ("sent", "EMAIL")


async def test_a_search_knows_the_letters_of_every_language_and_what_was_said(database_url: str) -> None:
    said = 'Übung "Élan"\nŽena'
    async with Store(database_url) as store:
        await store.add_mail(Mail(None, "anna@example.org", "", said, None, None, b""))
        await store.add_message("twilio", "+44", {"text": said}, taken_as="SM1")
        await store.add_message("fcm", "phone", {"title": "t", "body": said}, taken_as="p1")
        await store.add_mock_delivery(uuid4(), "PUSH", "phone", {"title": said, "body": "b"})
        await store.add_webhook("up", "1", said, verified=None, answer=204)
        await store.add_request("smtp", said, "451")
        for kind, found in ((None, 5), ("refused", 1)):
            assert len(await walked(store, kind, said.lower())) == found
