"""Reads every statement and holds it against shared/lifecycle.py and the house rules: `python -m tools.sql_guards`.

A statement that moves notifications says from where and to where in literals, so that both can be read here.
"""

import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

from pglast import ast, parse_sql
from pglast.enums import A_Expr_Kind, BoolExprType, LockClauseStrength, SubLinkType
from pglast.parser import ParseError

from shared import lifecycle
from tools.sql_origins import Level, Origin, alias, children, conditions, levels, names, output, own_nodes, trace, walk

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = ("services/*/sql", "shared/sql", "shared/*/sql")
SCHEMAS = ("notifyqueue", "pg_catalog")
TABLE = ("notifyqueue", "notifications")

EQUAL = (A_Expr_Kind.AEXPR_OP, A_Expr_Kind.AEXPR_IN)  # of the latter `=` is IN, `<>` is NOT IN

Allowed = Callable[[str, str], bool]
Statuses = frozenset[str]


def violations(name: str, text: str, allowed: Allowed) -> list[str]:
    """What is wrong with the statement of a file called `name`."""
    try:
        statements = parse_sql(text)
    except ParseError as error:
        return [f"cannot be parsed: {error}"]
    found = [] if text.startswith(f"-- {name}:") else [f"must begin with `-- {name}:` and what it promises"]
    if len(statements) != 1:
        found.append(f"has {len(statements)} statements instead of one")
    for statement in statements:
        found += _stars(statement.stmt)
        found += _strange_tables(statement.stmt, frozenset())
        found += _parameters(statement.stmt)
        for level in levels(statement.stmt, {}):
            found += _moves(level, allowed)
    return found


def _stars(statement: ast.Node) -> Iterator[str]:
    if any(isinstance(node, ast.A_Star) for node in walk(statement)):
        yield "names no columns: `*` gives what a later migration adds"


def _strange_tables(node: ast.Node, ctes: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.LockingClause):  # names aliases
        return
    if clause := getattr(node, "withClause", None):
        ctes |= {cte.ctename for cte in clause.ctes}
    is_table = isinstance(node, ast.RangeVar) and (node.schemaname or node.relname not in ctes)
    if is_table and node.schemaname not in SCHEMAS:
        yield f"table {node.relname} is not qualified with {' or '.join(SCHEMAS)}"
    for child in children(node):
        yield from _strange_tables(child, ctes)


def _parameters(statement: ast.Node) -> Iterator[str]:
    if any(_asks_by_parameter(level) for level in levels(statement, {})):
        yield "compares status with a parameter, which loses the partial index"


def _asks_by_parameter(level: Level) -> bool:
    return any(
        _has_parameter(other) and not all(_is_read_already(column, level) for column in _status_columns(one))
        for node in own_nodes(level.query)
        for one, other in _comparisons(node)
    )


def _comparisons(node: ast.Node) -> list[tuple[object, object]]:
    if isinstance(node, ast.A_Expr):
        return [(node.lexpr, node.rexpr), (node.rexpr, node.lexpr)]
    if isinstance(node, ast.CaseExpr):
        return [(node.arg, tuple(when.expr for when in node.args))]
    if isinstance(node, ast.SubLink):
        return [(node.testexpr, node.subselect)]
    return []


def _status_columns(operand: object) -> list[ast.ColumnRef]:
    """The column, however wrapped; a test of it, or a choice by it, is something else."""
    if isinstance(operand, ast.ColumnRef):
        return [operand] if names(operand)[-1:] == ["status"] else []
    if isinstance(operand, ast.TypeCast | ast.CollateClause):
        return _status_columns(operand.arg)
    if isinstance(operand, ast.FuncCall | ast.CoalesceExpr | ast.RowExpr):
        return [column for argument in operand.args or () for column in _status_columns(argument)]
    return []


def _is_read_already(column: ast.ColumnRef, level: Level) -> bool:
    """Whether it filters what an inner query with a limit has read: no index is at stake there."""
    origin = trace(column, level)
    return origin is not None and any(getattr(inner.query, "limitCount", None) for inner in origin.levels[1:])


def _has_parameter(operand: object) -> bool:
    return any(isinstance(node, ast.ParamRef) for node in walk(operand))


def _moves(level: Level, allowed: Allowed) -> Iterator[str]:
    """What is wrong with the way in which a query changes the status of notifications."""
    query = level.query
    if not _is_notifications(getattr(query, "relation", None)):
        return
    if isinstance(query, ast.MergeStmt):
        yield "merges into notifications, whose guards cannot be read: write an UPDATE"
    changed = getattr(query, "onConflictClause", query) if isinstance(query, ast.InsertStmt) else query
    if not isinstance(changed, ast.UpdateStmt | ast.OnConflictClause):
        return
    for assignment in changed.targetList or ():
        if assignment.name == "status":
            yield from _move(level, _literals(assignment.val), allowed)
            if _literals(assignment.val) & lifecycle.TERMINAL:
                yield from _left_at_gates(changed, "PENDING" in (_guards(level)[0] or ()))


def _left_at_gates(end: ast.Node, from_pending: bool) -> Iterator[str]:
    """What an end takes from whoever stands at a gate, or was called up from one: a constraint would refuse it."""
    put_out = {assignment.name for assignment in end.targetList if _is_false(assignment.val)}
    for column in ("granted", "waiting") if from_pending else ("granted",):
        if column not in put_out:
            yield f"ends notifications without {column} = false, which a constraint wants of each"


def _is_false(value: object) -> bool:
    return isinstance(value, ast.A_Const) and isinstance(value.val, ast.Boolean) and not value.val.boolval


def _move(level: Level, targets: Statuses, allowed: Allowed) -> Iterator[str]:
    if not targets:
        yield "sets status to something other than literals"
    guards, unlocked = _guards(level)
    if guards is None and unlocked:
        yield "guards the status in a query that does not lock the rows: they may have moved on when they are updated"
    elif guards is None:
        yield "changes the status without a guard on the old one (status = '…', status IN ('…'), of the same rows)"
    for source in sorted(guards or ()):
        for target in sorted(targets):
            if not allowed(source, target):
                yield f"takes {source} to {target}, which shared/lifecycle.py does not allow"


def _guards(level: Level) -> tuple[Statuses | None, bool]:
    """The statuses that the rows of an update may have, and whether a guard was found that does not hold."""
    found, unlocked = [_guard(level, level.query.relation)], False
    for origin in _drawn_from(level):
        drawn = _both([_guard(step, origin.table) for step in origin.levels])
        if drawn is not None and not _locks(origin):
            unlocked = True
        else:
            found.append(drawn)
    return _both(found), unlocked


def _drawn_from(level: Level) -> Iterator[Origin]:
    """The notifications in other queries that are the ones to be updated, because their ids are said to be equal."""
    for condition in _conjuncts(level.query):
        if isinstance(condition, ast.SubLink) and condition.subLinkType == SubLinkType.ANY_SUBLINK:
            pair = [_origin(condition.testexpr, level), output(next(levels(condition.subselect, level.ctes)), None)]
        elif isinstance(condition, ast.A_Expr) and condition.name[-1].sval == "=":
            pair = [_origin(condition.lexpr, level), _origin(condition.rexpr, level)]
        else:
            continue
        ids = [origin for origin in pair if origin and origin.column == "id" and _is_notifications(origin.table)]
        others = [origin for origin in ids if origin.table is not level.query.relation]
        if len(ids) == 2 and len(others) == 1:
            yield others[0]


def _origin(operand: object, level: Level) -> Origin | None:
    return trace(operand, level) if isinstance(operand, ast.ColumnRef) else None


def _conjuncts(query: ast.Node) -> Iterator[ast.Node]:
    pending = conditions(query)
    while pending:
        condition = pending.pop()
        if isinstance(condition, ast.BoolExpr) and condition.boolop == BoolExprType.AND_EXPR:
            pending += condition.args
        else:
            yield condition


def _locks(origin: Origin) -> bool:
    """Whether the query that reads the table holds its rows until the update."""
    return any(
        clause.strength >= LockClauseStrength.LCS_FORNOKEYUPDATE
        and (not clause.lockedRels or alias(origin.table) in {locked.relname for locked in clause.lockedRels})
        for clause in getattr(origin.levels[-1].query, "lockingClause", None) or ()
    )


def _guard(level: Level, table: ast.RangeVar) -> Statuses | None:
    """The statuses that a query lets through for the rows of a table. None: any."""

    def is_its_status(operand: object) -> bool:
        origin = _origin(operand, level)
        return origin is not None and origin.table is table and origin.column == "status"

    return _both([_let_through(condition, is_its_status) for condition in conditions(level.query)])


def _let_through(condition: ast.Node, is_its_status: Callable[[object], bool]) -> Statuses | None:
    if isinstance(condition, ast.BoolExpr):
        parts = [_let_through(part, is_its_status) for part in condition.args]
        if condition.boolop == BoolExprType.AND_EXPR:
            return _both(parts)
        known = [part for part in parts if part is not None]
        either = condition.boolop == BoolExprType.OR_EXPR and len(known) == len(parts)
        return frozenset().union(*known) if either else None
    equal = isinstance(condition, ast.A_Expr) and condition.kind in EQUAL and condition.name[-1].sval == "="
    return _literals(condition.rexpr) or None if equal and is_its_status(condition.lexpr) else None


def _both(guards: list[Statuses | None]) -> Statuses | None:
    known = [guard for guard in guards if guard is not None]
    return reduce(frozenset.intersection, known) if known else None


def _literals(value: object) -> Statuses:
    """The strings, where there is nothing but strings, or a choice between them."""
    if isinstance(value, ast.CaseExpr):
        value = (value.defresult, *(when.result for when in value.args))
    values = value if isinstance(value, tuple) else (value,)
    plain = [item.arg if isinstance(item, ast.TypeCast) else item for item in values]
    texts = [item.val.sval for item in plain if isinstance(item, ast.A_Const) and isinstance(item.val, ast.String)]
    return frozenset(texts) if len(texts) == len(values) else frozenset()


def _is_notifications(relation: ast.RangeVar | None) -> bool:
    return relation is not None and (relation.schemaname, relation.relname) == TABLE


def main() -> int:
    files = sorted(file for folder in FOLDERS for place in CHECKOUT.glob(folder) for file in place.rglob("*.sql"))
    found = [
        f"{file.relative_to(CHECKOUT)}: {violation}"
        for file in files
        for violation in violations(file.stem, file.read_text("utf-8"), lifecycle.allowed)
    ]
    print("\n".join([*found, f"{len(files)} statements read, {len(found)} violations"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
