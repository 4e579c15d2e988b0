"""Looks for what stands still, and for what cannot be: the owner's reconciler, for whoever is paged.

Each check is one statement that is bounded and changes nothing. What a sweep of the workers would mend without asking a
rule of theirs can be mended from here; everything else is somebody's decision.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeAlias

from shared.batching import Contention
from shared.database import DatabaseBug, Executor, Statements, translated_faults
from shared.doctor.checks import ARGS, CHECKS, SCHEMA, UNMADE, Bounds
from shared.doctor.findings import Check, Finding, as_json, exit_code, line
from shared.doctor.logins import judge, missing_logins
from shared.errors import DatabaseUnavailable
from shared.mending import BEFORE_ALL, mend_gates
from shared.migrations import MigrationError, migrations, plan

__all__ = [
    "CHECKS",
    "UNMADE",
    "Bounds",
    "Check",
    "Finding",
    "as_json",
    "diagnose",
    "exit_code",
    "line",
    "look_all",
    "repair",
]

sql = Statements("shared.doctor")

Fault: TypeAlias = DatabaseBug | DatabaseUnavailable | Contention

NO_SCHEMA = ("42P01", "3F000")  # SQLSTATE: no such table, no such schema


async def diagnose(executor: Executor, bounds: Bounds) -> list[Finding]:
    return [finding async for finding in _findings(executor, bounds)]


async def look_all(executor: Executor, bounds: Bounds) -> list[Finding]:
    """What a service may look for by its own login: all but the schema and the logins, which are the owner's to see.

    Raises DatabaseUnavailable where that is what each of them met: then nothing is known, and nothing found.
    """
    looks = [await _look_or_fault(_look(executor, check, bounds)) for check in CHECKS]
    away = [look for look in looks if isinstance(look, DatabaseUnavailable)]
    if len(away) == len(CHECKS):
        raise away[0]
    return [finding for check, look in zip(CHECKS, looks, strict=True) for finding in _found(check.name, look)]


async def repair(executor: Executor) -> int:
    """Sets the gates that are missing, as every worker does once a minute; answers how many."""
    found, after = 0, BEFORE_ALL
    while (mended := await mend_gates(executor, after)).last:
        found, after = found + mended.gates, mended.last
    return found


async def _findings(executor: Executor, bounds: Bounds) -> AsyncIterator[Finding]:
    schema = await _or_unmade("schema", _schema(executor))
    if schema and schema[0].facts in NO_SCHEMA:
        yield Finding(SCHEMA, 1, facts="there is none in this database")
        return
    for finding in schema:
        yield finding
    for check in CHECKS:
        for finding in await _or_unmade(check.name, _look(executor, check, bounds)):
            yield finding
    for finding in await _or_unmade("logins", _logins(executor)):
        yield finding


async def _or_unmade(name: str, look: Awaitable[list[Finding]]) -> list[Finding]:
    return _found(name, await _look_or_fault(look))


async def _look_or_fault(look: Awaitable[list[Finding]]) -> list[Finding] | Fault:
    """One that fails stands in no other's way."""
    try:
        with translated_faults():
            return await look
    except (DatabaseBug, DatabaseUnavailable, Contention) as error:
        return error


def _found(name: str, look: list[Finding] | Fault) -> list[Finding]:
    """A fault is told by its kind: words may have anything in them."""
    if isinstance(look, list):
        return look
    cause = look.__cause__
    return [Finding(UNMADE, 1, subject=name, facts=getattr(cause, "sqlstate", None) or type(cause).__name__)]


async def _look(executor: Executor, check: Check, bounds: Bounds) -> list[Finding]:
    args = ARGS[check.name](bounds) if check.name in ARGS else ()
    rows = await executor.fetch(sql[check.name], *args)
    return [
        Finding(check, row["count"], row["bounded"], row["subject"], row["age"], row["facts"], row["ids"])
        for row in rows
    ]


async def _schema(executor: Executor) -> list[Finding]:
    applied = {row["version"]: row["checksum"] for row in await executor.fetch(sql["read_applied"])}
    try:
        missing = plan(migrations(), applied)
    except MigrationError as error:
        return [Finding(SCHEMA, 1, facts=str(error))]
    names = ", ".join(f"{migration.version:04}" for migration in missing)
    return [Finding(SCHEMA, len(missing), facts=f"not applied: {names}")] if missing else []


async def _logins(executor: Executor) -> list[Finding]:
    logins = {row["login"]: row["settings"] for row in await executor.fetch(sql["read_logins"])}
    found = list(missing_logins(list(logins)))
    for login in logins:
        rows = await executor.fetch(sql["read_grants"], login)
        granted = frozenset((row["relation"], row["privilege"], row["attribute"]) for row in rows)
        found += judge(login, logins[login], granted)
    return found
