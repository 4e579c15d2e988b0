"""What reads our statements finds each kind of mistake, and leaves right ones alone."""

import pytest

from tools.sql_guards import violations

TABLES = {"PENDING": {"PROCESSING", "CANCELLED"}, "PROCESSING": {"PENDING", "SENT"}, "FAILED": {"PENDING"}}


def allowed(source: str, target: str) -> bool:
    return target in TABLES.get(source, ())


AT_GATES = "which a constraint wants of each"


def read(statement: str) -> list[str]:
    """But for what an end takes from gates, which has a test of its own."""
    return [violation for violation in read_all(statement) if AT_GATES not in violation]


def read_all(statement: str) -> list[str]:
    return violations("example", f"-- example: says what it promises.\n{statement}", allowed)


CLAIM = """
WITH due AS MATERIALIZED (
  SELECT next.id
  FROM unnest($2::smallint[]) AS class (priority)
  CROSS JOIN LATERAL (
    SELECT n.id FROM notifyqueue.notifications AS n
    WHERE n.status = 'PENDING' AND NOT n.waiting AND n.priority = class.priority
    LIMIT 64 FOR UPDATE SKIP LOCKED
  ) AS next
  LIMIT 64
)
UPDATE notifyqueue.notifications AS n SET status = 'PROCESSING', claim_token = $1
FROM due WHERE n.id = due.id RETURNING n.id
"""

COMPLETE = """
WITH held AS MATERIALIZED (
  SELECT found.id
  FROM unnest($1::uuid[], $2::uuid[]) AS done (id, claim_token)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token FROM notifyqueue.notifications AS n WHERE n.id = done.id FOR UPDATE OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING' AND found.claim_token = done.claim_token
)
UPDATE notifyqueue.notifications AS n SET status = 'SENT' FROM held WHERE held.id = n.id
"""

RIGHT = {
    "guard in the where": """
        UPDATE notifyqueue.notifications SET status = 'CANCELLED' WHERE id = $1 AND status = 'PENDING'""",
    "guard with a list": """
        UPDATE notifyqueue.notifications SET status = 'PENDING' WHERE status IN ('PROCESSING', 'FAILED')""",
    "guard with casts": """
        UPDATE notifyqueue.notifications SET status = 'SENT'::text WHERE status = 'PROCESSING'::text""",
    "guard in both arms": """
        UPDATE notifyqueue.notifications AS n SET status = 'PENDING'
        WHERE n.id = $1 AND (n.status = 'FAILED' OR n.status = 'PROCESSING' AND n.lease_expires_at < now())""",
    "guard in a CTE that locks": CLAIM,
    "guard on what a CTE locked": COMPLETE,
    "guard on the CTE itself": """
        WITH held AS (SELECT n.id, n.status AS was FROM notifyqueue.notifications AS n WHERE n.id = $1 FOR UPDATE)
        UPDATE notifyqueue.notifications AS n SET status = 'CANCELLED' FROM held
        WHERE n.id = held.id AND held.was IS NOT NULL AND n.status = 'PENDING'""",
    "guard two CTEs away, under other names": """
        WITH held AS (SELECT n.id, n.status FROM notifyqueue.notifications AS n WHERE n.id = $1 FOR UPDATE),
        ours (notification, was) AS (SELECT h.id, h.status FROM held AS h)
        UPDATE notifyqueue.notifications AS n SET status = 'CANCELLED' FROM ours AS o
        WHERE n.id = o.notification AND o.was = 'PENDING'""",
    "rows by IN": """
        UPDATE notifyqueue.notifications SET status = 'CANCELLED' WHERE id IN (
          SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status = 'PENDING' LIMIT 100 FOR UPDATE OF n)""",
    "an outer join beside the guard": """
        WITH due AS (
          SELECT n.id FROM notifyqueue.notifications AS n
          LEFT JOIN notifyqueue.suppressions AS s ON s.address = n.address
          WHERE n.status = 'PENDING' FOR UPDATE OF n)
        UPDATE notifyqueue.notifications AS n SET status = 'PROCESSING' FROM due WHERE n.id = due.id""",
    "a choice between literals": """
        UPDATE notifyqueue.notifications SET status = CASE WHEN waiting THEN 'PENDING' ELSE 'SENT' END
        WHERE status = 'PROCESSING'""",
    "a parameter that filters what was read": """
        SELECT n.id FROM (SELECT n.id, n.status FROM notifyqueue.notifications AS n WHERE n.id < $1 LIMIT 100) AS n
        WHERE n.status = $2""",
    "an update that leaves the status": "UPDATE notifyqueue.notifications SET priority = $2 WHERE id = $1",
    "the status of another table": "UPDATE notifyqueue.webhook_deliveries SET status = $2 WHERE id = $1",
    "a test of the status beside a parameter": """
        SELECT n.id FROM notifyqueue.notifications AS n WHERE (n.status = 'SENT') = $1 AND n.tenant_id = $2""",
    "catalog and counting": """
        SELECT count(*) AS tables FROM pg_catalog.pg_class AS c WHERE EXISTS (SELECT FROM pg_catalog.pg_am)""",
    "a CTE with the name of a table": """
        WITH notifications AS (SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status = 'PENDING' FOR UPDATE)
        UPDATE notifyqueue.notifications AS n SET status = 'PROCESSING' FROM notifications AS m WHERE n.id = m.id""",
    "an insert that gives way": """
        INSERT INTO notifyqueue.notifications (id, status) SELECT a.id, 'PENDING' FROM unnest($1::uuid[]) AS a (id)
        ON CONFLICT DO NOTHING RETURNING id""",
    "an upsert with a guard": """
        INSERT INTO notifyqueue.notifications AS n (id) VALUES ($1)
        ON CONFLICT (id) DO UPDATE SET status = 'CANCELLED' WHERE n.status = 'PENDING'""",
}

NO_GUARD = "without a guard"
NOT_LOCKED = "does not lock"
NOT_ALLOWED = "does not allow"
NOT_LITERAL = "other than literals"
PARAMETER = "with a parameter"
STAR = "names no columns"
UNQUALIFIED = "is not qualified"

WRONG = [
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE id = $1", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT'", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status <> 'PENDING'", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status NOT IN ('PENDING')", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE NOT (status = 'PROCESSING')", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status = 'PROCESSING' OR id = $1", NO_GUARD),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status IN ('PROCESSING', lower('X'))", NO_GUARD),
    (  # somebody else's status
        """UPDATE notifyqueue.notifications AS n SET status = 'SENT' FROM notifyqueue.webhook_deliveries AS d
           WHERE n.id = d.notification_id AND d.status = 'PROCESSING'""",
        NO_GUARD,
    ),
    (  # the guarded rows are not the updated ones
        """WITH held AS (SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status = 'PROCESSING' FOR UPDATE)
           UPDATE notifyqueue.notifications AS n SET status = 'SENT' FROM held WHERE n.parent_id = held.id""",
        NO_GUARD,
    ),
    (  # a guard that the outer join does not enforce
        """WITH held AS (
             SELECT w.id FROM notifyqueue.notifications AS w
             LEFT JOIN notifyqueue.notifications AS n ON n.id = w.id AND n.status = 'PROCESSING' FOR UPDATE OF w)
           UPDATE notifyqueue.notifications AS n SET status = 'SENT' FROM held WHERE n.id = held.id""",
        NO_GUARD,
    ),
    (CLAIM.replace("FOR UPDATE SKIP LOCKED", ""), NOT_LOCKED),
    (CLAIM.replace("FOR UPDATE SKIP LOCKED", "FOR SHARE"), NOT_LOCKED),
    (COMPLETE.replace("FOR UPDATE", ""), NOT_LOCKED),
    (CLAIM.replace("n.status = 'PENDING' AND", ""), NO_GUARD),
    (CLAIM.replace("'PENDING'", "'FAILED'"), "takes FAILED to PROCESSING"),
    (COMPLETE.replace("'SENT'", "'CANCELLED'"), "takes PROCESSING to CANCELLED"),
    ("UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status IN ('PROCESSING', 'PENDING')", NOT_ALLOWED),
    ("UPDATE notifyqueue.notifications SET status = 'GONE' WHERE status = 'PENDING'", NOT_ALLOWED),
    ("UPDATE notifyqueue.notifications SET status = 'PROCESSING' WHERE status = 'PENDIGN'", NOT_ALLOWED),
    (
        """WITH moved AS (
             UPDATE notifyqueue.notifications SET status = 'SENT' WHERE status = 'PENDING' RETURNING id)
           SELECT moved.id FROM moved""",
        "takes PENDING to SENT",
    ),
    ("UPDATE notifyqueue.notifications SET status = $2 WHERE id = $1 AND status = 'PENDING'", NOT_LITERAL),
    (
        """UPDATE notifyqueue.notifications SET status = CASE WHEN waiting THEN 'PENDING' END
           WHERE status = 'PROCESSING'""",
        NOT_LITERAL,
    ),
    (
        """UPDATE notifyqueue.notifications SET status = CASE WHEN waiting THEN 'PENDING' ELSE status END
           WHERE status = 'PROCESSING'""",
        NOT_LITERAL,
    ),
    (
        """UPDATE notifyqueue.notifications SET status = CASE WHEN waiting THEN 'SENT' ELSE 'CANCELLED' END
           WHERE status = 'PROCESSING'""",
        "takes PROCESSING to CANCELLED",
    ),
    ("UPDATE notifyqueue.notifications SET (status, id) = ('SENT', id) WHERE status = 'PROCESSING'", NOT_LITERAL),
    (
        """INSERT INTO notifyqueue.notifications AS n (id) VALUES ($1)
           ON CONFLICT (id) DO UPDATE SET status = 'CANCELLED'""",
        NO_GUARD,
    ),
    (
        """MERGE INTO notifyqueue.notifications AS n USING notifyqueue.lanes AS l ON n.channel = l.channel
           WHEN MATCHED THEN UPDATE SET status = 'SENT'""",
        "write an UPDATE",
    ),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status = $1", PARAMETER),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE $1::text = n.status", PARAMETER),
    (
        "SELECT n.id FROM (SELECT m.id, m.status FROM notifyqueue.notifications AS m) AS n WHERE n.status = $1",
        PARAMETER,
    ),
    (
        """SELECT l.channel FROM notifyqueue.lanes AS l WHERE EXISTS (
             SELECT FROM notifyqueue.notifications AS n WHERE n.channel = l.channel AND n.status = $1)""",
        PARAMETER,
    ),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status IN ('SENT', $1)", PARAMETER),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status = ANY($1::text[])", PARAMETER),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE n.status IN (SELECT unnest($1::text[]))", PARAMETER),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE lower(n.status) <> lower($1)", PARAMETER),
    ("SELECT n.id FROM notifyqueue.notifications AS n WHERE (n.channel, n.status) = ('EMAIL', $1)", PARAMETER),
    ("SELECT CASE n.status WHEN $1 THEN 1 END AS one FROM notifyqueue.notifications AS n", PARAMETER),
    ("SELECT * FROM notifyqueue.notifications", STAR),
    ("SELECT n.id FROM (SELECT t.* FROM notifyqueue.notifications AS t) AS n", STAR),
    ("DELETE FROM notifyqueue.lanes WHERE channel = $1 RETURNING *", STAR),
    ("SELECT n.id FROM notifications AS n", UNQUALIFIED),
    ("SELECT n.id FROM public.notifications AS n", UNQUALIFIED),
    ("UPDATE lanes SET paused = true WHERE channel = $1", UNQUALIFIED),
    ("WITH lanes AS (SELECT 1 AS one) SELECT other.one FROM public.lanes AS other", UNQUALIFIED),
    ("SELECT (WITH due AS (SELECT 1 AS one) SELECT due.one FROM due) AS one FROM due", UNQUALIFIED),
    ("SELECT 1 AS one; SELECT 2 AS two", "2 statements"),
    ("", "0 statements"),
    ("SELEC 1", "cannot be parsed"),
]


@pytest.mark.parametrize("statement", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_statement_passes(statement: str) -> None:
    assert read(statement) == []


@pytest.mark.parametrize(("statement", "violation"), WRONG)
def test_a_wrong_statement_is_found_and_its_mistake_named(statement: str, violation: str) -> None:
    found = read(statement)
    assert len(found) == 1
    assert violation in found[0]


@pytest.mark.parametrize(
    ("said", "source", "target", "missing"),
    [
        ("granted = false", "PROCESSING", "SENT", []),
        ("granted = false, waiting = false", "PENDING", "CANCELLED", []),
        ("priority = 1", "PENDING", "PROCESSING", []),
        ("priority = 1", "PROCESSING", "SENT", ["granted"]),
        ("granted = true", "PROCESSING", "SENT", ["granted"]),
        ("granted = waiting", "PROCESSING", "SENT", ["granted"]),
        ("granted = false", "PENDING", "CANCELLED", ["waiting"]),
        ("priority = 1", "PENDING", "CANCELLED", ["granted", "waiting"]),
    ],
)
def test_an_end_takes_the_place_at_a_gate_and_the_slot_that_was_kept(
    said: str, source: str, target: str, missing: list[str]
) -> None:
    found = read_all(f"UPDATE notifyqueue.notifications SET status = '{target}', {said} WHERE status = '{source}'")
    assert found == [f"ends notifications without {column} = false, {AT_GATES}" for column in missing]


@pytest.mark.parametrize("comment", ["", "-- other: what it promises.\n", "-- what it promises.\n", "/* example: */"])
def test_a_statement_begins_with_its_name(comment: str) -> None:
    (found,) = violations("example", f"{comment}SELECT 1 AS one", allowed)
    assert found.startswith("must begin with `-- example:`")
