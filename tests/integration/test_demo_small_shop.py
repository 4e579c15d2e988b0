"""The demo's second shop changes nobody's limits but its own."""

import asyncpg

from sandbox.demo import small_shop
from shared.owner.tenants import create_tenant

LIMITED = "SELECT t.id FROM notifyqueue.tenants AS t WHERE t.accept_rate IS NOT NULL"


async def test_a_tenant_that_somebody_calls_demo_keeps_its_limits(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await create_tenant(connection, "demo")
    for _ in range(2):
        await small_shop.open_up(database_url)
    assert [row["id"] for row in await connection.fetch(LIMITED)] == [small_shop.TENANT]
    await connection.close()
