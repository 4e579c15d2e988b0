"""What a mutation is, and the words that several have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    edits: Mapping[str, str]
    """The exact text that goes, which stands in the file once, and what takes its place."""
    tests: Sequence[str]
    """Each of them fails."""
    by: str | tuple[str, ...] = "assert"
    """What they fail by, as pytest begins to tell it: where nothing runs any more, nothing was noticed."""


WORKER, SCHEDULER, DISPATCHER = (f"services/{service}/sql" for service in ("worker", "scheduler", "dispatcher"))
LOCKED, CONTENTION, BAD_ITEM = "shared.database.Locked", "shared.batching.Contention", "shared.batching.BadItem"
NOT_REFUSED = "Failed: DID NOT RAISE"

CLAIMS = "tests/concurrency/test_claims.py"
IDEMPOTENCY = "tests/concurrency/test_idempotency.py"
REDRIVES = "tests/concurrency/test_redrive.py"
TOTALS = "tests/concurrency/test_totals.py"
LOCKS = "tests/concurrency/test_locks.py"
REDRIVE = "tests/integration/test_redrive.py"
START_FENCE = "tests/integration/test_start_fence.py"
FAULTS = "tests/integration/test_worker_faults.py"
LANES = "tests/integration/test_lanes.py"
RECOVERY = "tests/integration/test_recovery.py"
CONSTRAINTS = "tests/integration/test_constraints.py"
SUPPRESSIONS = "tests/integration/test_suppressions.py"
ERASURE = "tests/integration/test_erasure.py"
TURNSTILE_SUBSCRIBERS = "tests/integration/test_turnstile_subscribers.py"
ACCEPT_LIMITS = "tests/concurrency/test_accept_limits.py"
STEP = "tests/integration/test_accept_order.py::test_each_refusal_goes_before_all_that_come_later_and_touches_nothing"
OLD_TOKEN = "tests/integration/test_fences.py::test_an_old_token_changes_nothing_and_writes_no_event"
IN_HAND = " AND found.claim_token = done.claim_token"
