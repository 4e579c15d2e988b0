"""How large a batch of retention is, and that no table is forgotten."""

import re
from importlib import resources
from itertools import repeat

from pglast import ast, parse_sql

from services.worker.retention import BatchSize
from shared.migrations import migrations

# What is not emptied by time, and why.
KEPT = {
    "tenants": "as long as its owner wants",
    "api_keys": "histories name them",
    "lanes": "one row each",
    "webhook_endpoints": "until its tenant deletes it; deliveries that are kept may name it",
    "retention_marks": "one row each",
    "status_deltas": "merged into the totals, which takes them away",
    "status_totals": "since ever: a few rows for each tenant",
    "subscribers": "until the tenant erases them",
    "suppressions": "what nobody wants to get, nobody wants to get later either",
    "accept_buckets": "one row for a tenant",
    "templates": "as many as their quota, until their tenant erases them; of those a name and a number",
    "template_versions": "until their template is erased",
}
STATEMENTS = ("services.worker", "shared.removal")


def emptied() -> set[str]:
    """The tables that the statements of retention delete from."""
    files = [file for package in STATEMENTS for file in resources.files(package).joinpath("sql").iterdir()]
    texts = [file.read_text("utf-8") for file in files if re.match("remove_|erase_", file.name)]
    return {name for text in texts for name in _deleted_from(parse_sql(text)[0].stmt)}


def _deleted_from(statement: ast.Node) -> list[str]:
    ctes = [cte.ctequery for cte in statement.withClause.ctes] if statement.withClause else []
    return [query.relation.relname for query in [statement, *ctes] if isinstance(query, ast.DeleteStmt)]


def test_every_table_is_emptied_or_kept_on_purpose() -> None:
    made = {name for found in migrations() for name in re.findall(r"CREATE TABLE notifyqueue\.(\w+)", found.sql)}
    assert made
    assert emptied() | KEPT.keys() == made
    assert not emptied() & KEPT.keys()


def test_a_batch_that_took_too_long_is_halved_until_it_is_small() -> None:
    size = BatchSize()
    sizes = []
    for seconds in repeat(1.0, 8):
        size.took(seconds)
        sizes.append(size.rows)
    assert sizes == [512, 256, 128, 64, 32, 16, 16, 16]


def test_it_grows_again_after_a_row_of_quick_ones() -> None:
    size = BatchSize()
    for _ in range(2):
        size.shrink()
    sizes = []
    for seconds in repeat(0.1, 24):
        size.took(seconds)
        sizes.append(size.rows)
    assert sizes == [256] * 7 + [512] * 8 + [1024] * 9


def test_a_slow_one_begins_the_row_anew() -> None:
    size = BatchSize()
    for seconds in [*repeat(0.1, 7), 1.0, *repeat(0.1, 7)]:
        size.took(seconds)
    assert size.rows == 512
