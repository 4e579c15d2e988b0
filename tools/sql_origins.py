"""Where a column of a query comes from: which row of which table, through which subqueries and CTEs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pglast import ast
from pglast.enums import JoinType, SetOperation

QUERIES = (ast.SelectStmt, ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)

Ctes = Mapping[str, ast.CommonTableExpr]


@dataclass(frozen=True)
class Level:
    """A query, and the CTEs that it can name."""

    query: ast.Node
    ctes: Ctes


@dataclass(frozen=True)
class Origin:
    """The table that has the column, and the queries between it and whoever asked, outermost first."""

    table: ast.RangeVar
    column: str
    levels: tuple[Level, ...]


def children(node: object) -> Iterator[ast.Node]:
    if isinstance(node, tuple):
        for item in node:
            yield from [item] if isinstance(item, ast.Node) else children(item)
    elif isinstance(node, ast.Node):
        for slot in node.__slots__:
            value = getattr(node, slot)
            yield from [value] if isinstance(value, ast.Node) else children(value)


def walk(node: object) -> Iterator[ast.Node]:
    """The node, if it is one, and everything below."""
    if isinstance(node, ast.Node):
        yield node
    for child in children(node):
        yield from walk(child)


def own_nodes(query: ast.Node) -> Iterator[ast.Node]:
    """Everything in a query that is not in a query inside."""
    for child in children(query):
        yield child
        if not isinstance(child, QUERIES):
            yield from own_nodes(child)


def levels(node: ast.Node, ctes: Ctes) -> Iterator[Level]:
    """Every query in a statement, with the CTEs that are in scope there."""
    if clause := getattr(node, "withClause", None):
        ctes = {**ctes, **{cte.ctename: cte for cte in clause.ctes}}
    if isinstance(node, QUERIES):
        yield Level(node, ctes)
    for child in children(node):
        yield from levels(child, ctes)


def names(column: ast.ColumnRef) -> list[str]:
    return [field.sval for field in column.fields if isinstance(field, ast.String)]


def sources(query: ast.Node) -> dict[str, ast.Node]:
    """What a query reads, by alias. What an outer join may leave out is not there: it filters nothing."""
    pending = list(getattr(query, "fromClause", None) or ())
    if relation := getattr(query, "relation", None):
        pending.append(relation)
    found = {}
    while pending:
        item = pending.pop()
        if isinstance(item, ast.JoinExpr):
            pending += _kept_sides(item)
        else:
            found[alias(item)] = item
    return found


def alias(item: ast.Node) -> str:
    given = getattr(item, "alias", None)
    return str(given.aliasname if given else getattr(item, "relname", ""))


def conditions(query: ast.Node) -> list[ast.Node]:
    """What all rows of a query fulfil."""
    conflict = getattr(query, "onConflictClause", None)
    found = [getattr(conflict or query, "whereClause", None)]
    joins = [item for item in getattr(query, "fromClause", None) or () if isinstance(item, ast.JoinExpr)]
    while joins:
        join = joins.pop()
        if join.jointype == JoinType.JOIN_INNER:
            found.append(join.quals)
        joins += [side for side in _kept_sides(join) if isinstance(side, ast.JoinExpr)]
    return [condition for condition in found if condition is not None]


def _kept_sides(join: ast.JoinExpr) -> list[ast.Node]:
    kept = {
        JoinType.JOIN_INNER: [join.larg, join.rarg],
        JoinType.JOIN_LEFT: [join.larg],
        JoinType.JOIN_RIGHT: [join.rarg],
    }
    return kept.get(join.jointype, [])


def trace(column: ast.ColumnRef, level: Level) -> Origin | None:
    """None where it cannot be told, which is also the answer to an unqualified name among several sources."""
    *qualifier, name = names(column) or [""]
    found = sources(level.query)
    if len(found) == 1 and not qualifier:
        qualifier = list(found)
    source = found.get(qualifier[-1]) if qualifier else None
    if isinstance(source, ast.RangeVar) and (source.schemaname or source.relname not in level.ctes):
        return Origin(source, name, (level,))
    inner = _inner(source, level)
    origin = inner and output(inner, name, _renamed(source, level))
    return Origin(origin.table, origin.column, (level, *origin.levels)) if origin else None


def output(level: Level, name: str | None, renamed: tuple[ast.String, ...] = ()) -> Origin | None:
    """Where an output column of a query comes from; without a name, its only one."""
    targets = getattr(level.query, "targetList", None) or ()
    labels = [label.sval for label in renamed] or [_label(target) for target in targets]
    for label, target in zip(labels, targets, strict=False):
        if name in (None, label) and isinstance(target.val, ast.ColumnRef):
            return trace(target.val, level)
    return None


def _label(target: ast.ResTarget) -> str:
    own = names(target.val)[-1:] if isinstance(target.val, ast.ColumnRef) else []
    return str(target.name or "".join(own))


def _inner(source: ast.Node | None, level: Level) -> Level | None:
    query: ast.Node | None = None
    if isinstance(source, ast.RangeSubselect):
        query = source.subquery
    elif isinstance(source, ast.RangeVar):
        query = level.ctes[source.relname].ctequery
    # A union has no one origin, and what a CTE wrote is not what it was.
    if isinstance(query, ast.SelectStmt) and query.op == SetOperation.SETOP_NONE:
        return next(levels(query, level.ctes))
    return None


def _renamed(source: ast.Node | None, level: Level) -> tuple[ast.String, ...]:
    given = getattr(source, "alias", None)
    if given and given.colnames:
        return tuple(given.colnames)
    if isinstance(source, ast.RangeVar):
        return tuple(level.ctes[source.relname].aliascolnames or ())
    return ()
