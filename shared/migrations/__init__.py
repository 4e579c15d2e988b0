"""Brings the schema up to date: numbered SQL files, each applied once, in one transaction, and never edited after.

Our own hundred lines because no kept tool fits asyncpg (docs/architecture.md says which were weighed).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import asyncpg

# Any constant will do, as long as every version of this file takes the same lock.
LOCK = 0x6E6F746966791
PATIENCE = "3s"

LEDGER = """
CREATE SCHEMA IF NOT EXISTS notifyqueue;
CREATE TABLE IF NOT EXISTS notifyqueue.schema_migrations (
  version int PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);
"""


class MigrationError(Exception):
    """The schema and these files contradict each other, or a table is in use; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All of them, ascending. A file is named `<version>_<name>.sql`."""
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql")]
    found = [Migration(int(file.name[:4]), file.name[5:-4], file.read_text("utf-8")) for file in files]
    return sorted(found, key=lambda migration: migration.version)


def latest_version() -> int:
    """The schema version that this code was written for."""
    return migrations()[-1].version


async def migrate(url: str) -> list[Migration]:
    """Applies what is missing and answers it. Two at once take turns. Raises MigrationError, asyncpg errors."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            # Behind a change that waits for a table everybody waits for that table.
            await connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
            await connection.execute(LEDGER)
            missing = plan(migrations(), await _applied(connection))
            for migration in missing:
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO notifyqueue.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                    migration.version,
                    migration.name,
                    migration.checksum,
                )
            return missing
    except asyncpg.LockNotAvailableError:
        raise MigrationError(f"a table was in use for more than {PATIENCE}; nothing was changed, try again") from None
    finally:
        await connection.close()


async def _applied(connection: "asyncpg.Connection[asyncpg.Record]") -> dict[int, str]:
    rows = await connection.fetch("SELECT version, checksum FROM notifyqueue.schema_migrations")
    return {row["version"]: row["checksum"] for row in rows}


def plan(known: Sequence[Migration], applied: dict[int, str]) -> list[Migration]:
    """What is still to be applied. Raises MigrationError where an applied one was edited or is unknown here."""
    by_version = {migration.version: migration for migration in known}
    for version, checksum in sorted(applied.items()):
        if version not in by_version:
            raise MigrationError(f"the database has migration {version}, which this version does not know")
        if by_version[version].checksum != checksum:
            raise MigrationError(f"migration {version} was edited after it was applied")
    return [migration for migration in known if migration.version not in applied]
