"""What PostgreSQL does to run a statement: its plan and what that read. The statement's effects are undone."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any

import asyncpg

Node = Mapping[str, Any]


class Plan:
    """A plan as it ran: EXPLAIN with ANALYZE and BUFFERS."""

    def __init__(self, root: Node) -> None:
        self._root = root

    def nodes(self, *types: str) -> list[Node]:
        """The nodes whose type ends with one of these, as "Index Only Scan" with "Scan"; all where none is named."""
        return [node for node in _walk(self._root) if not types or node["Node Type"].endswith(types)]

    def scans(self, table: str) -> set[str]:
        """How a table is read: "Seq Scan", "Index Scan", ..."""
        return {node["Node Type"] for node in self.nodes("Scan") if node.get("Relation Name") == table}

    def indexes(self) -> set[str]:
        """The indexes that are read."""
        return {node["Index Name"] for node in self.nodes("Scan") if "Index Name" in node}

    def sorted_rows(self) -> int:
        """How many rows the largest sort was given."""
        return max((_rows(child) for node in self.nodes("Sort") for child in node["Plans"]), default=0)

    def rows(self, *, but: Set[str] = frozenset()) -> int:
        """How many the most thorough of its scans looked at, `but` those of these tables."""
        scans = [node for node in self.nodes("Scan") if node.get("Relation Name") not in but]
        return max((_rows(node) + _removed(node) for node in scans), default=0)

    @property
    def buffers(self) -> int:
        """Pages that were looked at, in memory or not."""
        return int(self._root["Shared Hit Blocks"] + self._root["Shared Read Blocks"])

    def __str__(self) -> str:
        return json.dumps(self._root, indent=1)


async def explain(
    connection: "asyncpg.Connection[asyncpg.Record]", statement: str, args: Sequence[object], *, generic: bool
) -> Plan:
    """Runs a prepared statement, by the plan that is made for these arguments, or by the `generic` one for any."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = force_{'generic' if generic else 'custom'}_plan")
        await connection.execute(f"PREPARE explained AS {statement}")
        plan = await explain_prepared(connection, "explained", args)
    finally:
        await transaction.rollback()
    await connection.execute("DEALLOCATE explained")
    return plan


async def execute_prepared(connection: "asyncpg.Connection[asyncpg.Record]", name: str, args: Sequence[object]) -> None:
    """By whatever plan the connection takes for it."""
    await connection.execute(_execution(name, args))


async def explain_prepared(connection: "asyncpg.Connection[asyncpg.Record]", name: str, args: Sequence[object]) -> Plan:
    """Likewise; within a transaction, which undoes it."""
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT JSON) {_execution(name, args)}")
    return Plan(json.loads(text)[0]["Plan"])


class Explaining:
    """Runs statements like a database, and keeps the plan of each: a store that is given one shows what it does."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", *, generic: bool) -> None:
        self._connection = connection
        self._generic = generic
        self.plans: list[Plan] = []

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]":
        self.plans.append(await explain(self._connection, query, args, generic=self._generic))
        return await self._connection.fetch(query, *args)

    @property
    def plan(self) -> Plan:
        """Of the only statement that was run."""
        (plan,) = self.plans
        return plan


def _execution(name: str, args: Sequence[object]) -> str:
    return f"EXECUTE {name}" + (f" ({', '.join(map(_literal, args))})" if args else "")


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def _rows(node: Node) -> int:
    return int(node["Actual Rows"] * node["Actual Loops"])


def _removed(node: Node) -> int:
    return int(node.get("Rows Removed by Filter", 0) * node["Actual Loops"])


def _literal(value: object) -> str:
    """Quoted and without a type, which it gets from the parameter."""
    return "NULL" if value is None else "'" + _text(value).replace("'", "''") + "'"


def _text(value: object) -> str:
    match value:
        case list() | tuple():
            return "{" + ", ".join(map(_element, value)) + "}"
        case bytes():
            return rf"\x{value.hex()}"
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case _:
            return str(value)


def _element(value: object) -> str:
    return "NULL" if value is None else '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
