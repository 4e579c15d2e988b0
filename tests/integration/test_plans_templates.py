"""The statements of templates keep their plans: with and without statistics, for any arguments, on 18 and 15."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.notification import Request, TemplateUse
from services.scheduler.store import Store
from services.scheduler.template_store import TemplateStatements
from services.scheduler.templates import VersionRef
from shared.paging import NEWEST, Page
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Explaining, Plan

COUNT = 20_000
GROUP = 500
TABLES = ("templates", "template_versions")

# Of each tenant one in ten is erased, and every template has three versions.
FILLING = f"""
INSERT INTO notifyqueue.tenants (id) SELECT 'tenant-' || n FROM generate_series(0, 19) AS n;
INSERT INTO notifyqueue.templates (id, tenant_id, name, channel, newest, erased_at)
SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
  'tenant-' || n % 20, 'template-' || n, 'EMAIL', 3, CASE WHEN n % 10 = 7 THEN now() END
FROM generate_series(1, {COUNT}) AS n;
INSERT INTO notifyqueue.template_versions (template_id, version, default_locale, variants)
SELECT t.id, version, 'en', '{{"en": {{"text": "Hello"}}}}'
FROM notifyqueue.templates AS t, generate_series(1, 3) AS version WHERE t.erased_at IS NULL;
"""


def id_of(number: int) -> UUID:
    return UUID(f"{1_700_000_000_000 + number:012x}70008000{number:012x}")


async def fill(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute(FILLING)


@pytest.fixture(scope="module", params=["postgres", "postgres_15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    return asyncio.run(filled(server, "plans_templates", fill, request.param))


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
async def explaining(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Explaining]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield Explaining(connection, generic=request.param)
    finally:
        await transaction.rollback()
        await connection.close()


def assert_by_key(plan: Plan, buffers: int) -> None:
    for table in TABLES:
        assert "Seq Scan" not in plan.scans(table), plan
    assert plan.buffers <= buffers, plan


def asked(number: int, use: TemplateUse | None) -> Request:
    tenant = f"tenant-{number % 20}"
    return Request(tenant, f"key-{number}", "EMAIL", "a@example.com", {}, 2, None, None, False, "", None, {}, use)


@pytest.mark.parametrize("version", [None, 2])
async def test_which_version_is_meant_is_looked_up_one_by_one(explaining: Explaining, version: int | None) -> None:
    uses = [TemplateUse(f"template-{number}", version, None, "{}") for number in range(1, GROUP + 1)]
    facts = await Store(explaining).look_up_keys([asked(number, use) for number, use in enumerate(uses, 1)])
    found = [fact.template for fact in facts.values()]
    assert sum(each is None for each in found) == GROUP / 10
    assert {each.version for each in found if each} == {version or 3}
    assert_by_key(explaining.plan, buffers=20 + 14 * GROUP)


async def test_without_a_template_none_is_looked_at(explaining: Explaining) -> None:
    await Store(explaining).look_up_keys([asked(number, None) for number in range(GROUP)])
    looks = [node for node in explaining.plan.nodes("Scan") if node.get("Relation Name") in TABLES]
    assert looks
    assert all(node["Actual Loops"] == 0 for node in looks), explaining.plan


async def test_texts_are_read_one_by_one(explaining: Explaining) -> None:
    refs = [VersionRef(id_of(number), 2, "EMAIL") for number in range(1, GROUP + 1)]
    assert len(await TemplateStatements(explaining).read_variants(refs)) == GROUP * 0.9
    assert_by_key(explaining.plan, buffers=10 + 4 * GROUP)


async def test_a_page_is_a_range_of_an_index(explaining: Explaining) -> None:
    store = TemplateStatements(explaining)
    assert len(await store.list_templates("tenant-7", Page(50, NEWEST))) == 0  # all of them are erased
    assert len(await store.list_templates("tenant-3", Page(50, id_of(COUNT // 2)))) == 50
    for plan in explaining.plans:
        assert "Seq Scan" not in plan.scans("templates"), plan
        assert plan.buffers <= 500, plan  # of a tenant's thousand


async def test_one_is_read_counted_written_and_erased_by_key(explaining: Explaining) -> None:
    store = TemplateStatements(explaining)
    known = await store.read_template("tenant-3", "template-3", 1)
    assert known
    assert (known.versions, known.erased) == (3, False)
    assert await store.count_templates("tenant-3") == (1_000, None)
    assert await store.erase_template("tenant-3", "template-3")
    read, counted, erased = explaining.plans
    assert_by_key(read, buffers=20)
    assert_by_key(counted, buffers=1_200)
    assert "Seq Scan" not in erased.scans("templates"), erased
