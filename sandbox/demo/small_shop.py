"""A second shop, whose tenant has limits. Its keys last as long as a run."""

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import asyncpg

from sandbox.demo.story import BURST, IN_WINDOW, REQUIRED, WINDOW
from shared.access import Role
from shared.owner import Unusable
from shared.owner.keys import create_key
from shared.owner.tenants import create_tenant

TENANT = "demo-of-notify-queue"  # nobody's else: its limits are set anew
RATE = Decimal("0.001")  # of requests a second: in a quarter of an hour one
LIFE = timedelta(hours=1)

# What an earlier run has used of the limit is not this one's.
BOUNDS = """
UPDATE notifyqueue.tenants AS t
SET accept_rate = $2, accept_burst = $3, recipient_limit = $4, recipient_window = $5, required_categories = $6
WHERE t.id = $1
"""
EMPTY = "DELETE FROM notifyqueue.accept_buckets AS b WHERE b.tenant_id = $1"


async def open_up(url: str) -> str:
    """The key of its programs. `url` is the owner's."""
    connection = await asyncpg.connect(url)
    try:
        with suppress(Unusable):  # it is there
            await create_tenant(connection, TENANT)
        await connection.execute(BOUNDS, TENANT, RATE, BURST, IN_WINDOW, WINDOW, [REQUIRED])
        await connection.execute(EMPTY, TENANT)
        key = await create_key(connection, Role.ADMIN, TENANT, name="make demo", expires_in=LIFE)
    finally:
        await connection.close()
    return key.reveal()
