"""The owner's way to remove what retention keeps: dead notifications, which otherwise wait for a redrive."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias
from uuid import UUID

import asyncpg

from shared.removal import Removal, sql

Status: TypeAlias = Literal["FAILED", "DEAD_LETTERED"]

FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Purged:
    """How many notifications."""

    removed: int = 0
    being_reported: int = 0
    """Left for now: a webhook about them is under way."""


async def purge(
    connection: "asyncpg.Connection[asyncpg.Record]",
    tenant: str,
    status: Status,
    before: datetime | timedelta,
    *,
    dry_run: bool = False,
) -> Purged:
    """Those of a tenant that ended so before a time, or longer ago than that, with all that is about them.

    A batch at a time: broken off, it has done what it did. A dry run counts what would go.
    """
    done, after = Purged(), FIRST
    while batch := await _purge_batch(connection, tenant, status, before, after, dry_run=dry_run):
        found, after = batch
        done = Purged(done.removed + found.removed, done.being_reported + found.being_reported)
    return done


async def _purge_batch(
    connection: "asyncpg.Connection[asyncpg.Record]",
    tenant: str,
    status: Status,
    before: datetime | timedelta,
    after: UUID,
    *,
    dry_run: bool,
) -> tuple[Purged, UUID] | None:
    """And the last one that it looked at; None: there is none."""
    instant, age = (before, None) if isinstance(before, datetime) else (None, before)
    async with connection.transaction():
        await connection.fetch(sql["hold_mark"])
        rows = await connection.fetch(sql["find_dead"].replace("'FAILED'", f"'{status}'"), tenant, after, instant, age)
        if not rows:
            return None
        going = [row for row in rows if row["closed"]]
        removed = len(going)
        if not dry_run:
            event_ids = sorted(id_ for row in going for id_ in row["event_ids"])
            removed = (await Removal(connection).remove([row["id"] for row in going], event_ids)).notifications
        return Purged(removed, len(rows) - removed), rows[-1]["id"]
