"""What is taken out of the product, and the tests that notice.

A mutation is a mechanism that a promise rests on (docs/guarantees.md), the exact text that it consists of, and what
stands there instead. Those of one copy do not meet: no test of one runs into what another took out, so that one run
shows all of them. `python -m tests.mutations` shows each alone.
"""

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

FIRST_COPY = (
    Mutation(
        "SKIP LOCKED of the claim",
        f"{WORKER}/claim_due.sql",
        {"    LIMIT 64\n    FOR UPDATE SKIP LOCKED\n": "    LIMIT 64\n    FOR UPDATE\n"},
        [f"{LOCKS}::test_a_claim_takes_what_no_other_is_taking_and_waits_for_nobody"],
        by=LOCKED,
    ),
    Mutation("the fence of what was sent", f"{WORKER}/mark_sent.sql", {IN_HAND: ""}, [f"{OLD_TOKEN}[completion]"]),
    Mutation("the fence of what ended unsent", f"{WORKER}/end_unsent.sql", {IN_HAND: ""}, [f"{OLD_TOKEN}[refusal]"]),
    Mutation("the fence of a retry", f"{WORKER}/retry_later.sql", {IN_HAND: ""}, [f"{OLD_TOKEN}[retry]"]),
    Mutation("the fence of a start", f"{WORKER}/start_attempts.sql", {IN_HAND: ""}, [f"{OLD_TOKEN}[start]"]),
    Mutation(
        "the fence of a release by token",
        f"{WORKER}/release_token.sql",
        {"n.claim_token = $1 AND n.worker_id = $2": "$1::uuid <> $2::uuid"},
        [f"{OLD_TOKEN}[release by token]"],
    ),
    Mutation(
        "the fence of an admission",
        f"{WORKER}/hold_claims.sql",
        {" AND found.claim_token = asked.claim_token": ""},
        [f"{OLD_TOKEN}[admission]"],
    ),
    Mutation(
        "the fence of a slot that goes back",
        f"{WORKER}/return_slot.sql",
        {"n.claim_token = $2": "$2::uuid IS NOT NULL"},
        [f"{OLD_TOKEN}[slot]"],
    ),
    Mutation(
        "the fence of a renewal",
        f"{WORKER}/renew_leases.sql",
        {IN_HAND: ""},
        [f"{OLD_TOKEN}[renewal]"],
    ),
    Mutation(
        "that a repeated record looks for itself",
        "services/worker/recording.py",
        {"return repeated and await self._stands(record)": "return False"},
        [f"{FAULTS}::test_a_record_whose_answer_was_lost_is_not_called_lost"],
    ),
    Mutation(
        "the recipient's lock",
        f"{WORKER}/try_recipients.sql",
        {"pg_try_advisory_xact_lock(": "pg_try_advisory_xact_lock_shared("},
        [f"{LOCKS}::test_nobody_decides_about_a_recipient_while_another_does"],
    ),
    Mutation(
        "that a subscriber's channels take from the same slots",
        "services/worker/turnstile.py",
        {"window.held + taken + len(plan.newcomers)": "window.held + len(plan.newcomers)"},
        [f"{TURNSTILE_SUBSCRIBERS}::test_what_is_decided_at_once_for_two_lanes_is_decided_by_one_limit"],
    ),
    Mutation(
        "that what is suppressed ends before the call",
        "services/worker/delivery.py",
        {"if reason := suppression.reason(claim.suppressed_by):": "if reason := suppression.reason(()):"},
        ["tests/integration/test_suppressions.py::test_what_was_accepted_before_is_ended_before_any_call[OPTED_OUT]"],
    ),
    Mutation(
        "ON CONFLICT of an acceptance",
        f"{SCHEDULER}/insert_notifications.sql",
        {"  ON CONFLICT (tenant_id, idempotency_key) DO NOTHING\n": ""},
        [f"{IDEMPOTENCY}::test_who_comes_second_waits_for_what_becomes_of_the_first[commits]"],
        by="grpc.aio._call.AioRpcError",
    ),
    Mutation(
        "the lock of a bucket",
        f"{SCHEDULER}/lock_buckets.sql",
        {"  FOR NO KEY UPDATE\n": ""},
        [f"{LOCKS}::test_who_waits_for_a_bucket_counts_what_was_taken_meanwhile"],
        by=NOT_REFUSED,
    ),
    Mutation(
        "the lock of a cancellation",
        f"{SCHEDULER}/cancel_notification.sql",
        {"  FOR UPDATE\n": ""},
        ["tests/concurrency/test_cancel.py::test_a_cancellation_waits_for_a_claim_under_way[commits]"],
    ),
    Mutation(
        "the revision of a redrive by a filter",
        f"{SCHEDULER}/redrive_notifications.sql",
        {" OR locked.revision <> asked.revision": ""},
        [f"{REDRIVES}::test_what_died_again_since_it_was_found_is_not_redriven_by_who_found_it_before"],
    ),
    Mutation(
        "SKIP LOCKED of the sweep",
        f"{WORKER}/lock_expired_claims.sql",
        {"FOR UPDATE SKIP LOCKED": "FOR UPDATE"},
        [f"{RECOVERY}::test_a_row_that_somebody_holds_hides_no_other"],
        by=LOCKED,
    ),
    Mutation(
        "SKIP LOCKED of what merges totals",
        f"{WORKER}/merge_totals.sql",
        {"FOR UPDATE SKIP LOCKED": "FOR UPDATE"},
        [f"{TOTALS}::test_one_that_dies_halfway_has_merged_nothing_and_its_rows_are_merged_by_another"],
        by=LOCKED,
    ),
    Mutation(
        "that one worker has the probe",
        f"{WORKER}/take_probe.sql",
        {" AND l.probe_at <= clock_timestamp()": ""},
        [f"{LANES}::test_a_probe_is_one_workers_until_it_answers_or_is_given_up[postgres]"],
    ),
    Mutation(
        "that a breaker opens once",
        f"{WORKER}/open_breaker.sql",
        {"l.opening = $2 AND": "$2::bigint IS NOT NULL AND"},
        [f"{LANES}::test_a_breaker_opens_and_closes_once_for_each_opening[postgres]"],
    ),
    Mutation(
        "the fence of a webhook's result",
        f"{DISPATCHER}/record_results.sql",
        {"  WHERE found.claim_token = done.claim_token\n": ""},
        ["tests/integration/test_dispatch_results.py::test_results_of_a_group_are_judged_one_by_one"],
    ),
    Mutation(
        "that a tenant reads its own",
        f"{SCHEDULER}/read_notifications.sql",
        {" AND n.tenant_id = asked.tenant_id": ""},
        ["tests/integration/test_get_list_cancel.py::test_what_is_another_tenants_is_not_found[GetNotification]"],
        by=NOT_REFUSED,
    ),
)

SECOND_COPY = (
    Mutation(
        "the trigger that writes events",
        "shared/migrations/0001_first_notification.sql",
        {
            "CREATE TRIGGER write_events AFTER UPDATE ON notifyqueue.notifications\n"
            "  REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows\n"
            "  FOR EACH STATEMENT EXECUTE FUNCTION notifyqueue.write_events();\n": ""
        },
        [f"{CONSTRAINTS}::test_entering_an_end_writes_one_event[PROCESSING-SENT]"],
    ),
    Mutation(
        "the limit of the claim",
        f"{WORKER}/claim_due.sql",
        {
            "    FOR UPDATE SKIP LOCKED\n  ) AS next\n  LIMIT 64\n": "    FOR UPDATE SKIP LOCKED\n  ) AS next\n",
            "  SELECT due.id FROM due\n  LIMIT 64\n": "  SELECT due.id FROM due\n",
        },
        [f"{CLAIMS}::test_a_claim_takes_what_was_asked_for_and_no_more[8]"],
    ),
    Mutation(
        "that a claim leaves out what has no attempt left",
        f"{WORKER}/claim_due.sql",
        {"      AND n.attempt_count < n.max_attempts\n    ORDER BY": "    ORDER BY"},
        [f"{LOCKS}::test_what_has_no_attempt_left_stops_nobody_who_is_behind_it"],
        by=BAD_ITEM,  # the database refuses the whole claim
    ),
    Mutation(
        "that a claim asks whether its lane is paused",
        f"{WORKER}/claim_due.sql",
        {"WHERE l.channel = $1 AND l.paused_at IS NULL": "WHERE l.channel = $1"},
        [f"{LANES}::test_no_claim_that_begins_after_a_pause_takes_anything[postgres]"],
    ),
    Mutation(
        "one suspect at a time",
        "services/worker/lane.py",
        {"                take_suspect=take_suspect,\n": "                take_suspect=True,\n"},
        [f"{LANES}::test_of_the_suspects_one_runs_at_a_time"],
    ),
    Mutation(
        "one suspect at a time, over all lanes",
        "services/worker/lane.py",
        {"if self._asked or self.holder is not None:": "if self.holder is not None:"},
        [f"{LANES}::test_lanes_that_claim_at_once_take_one_suspect_between_them"],
    ),
    Mutation(
        "one order of rows",
        "services/worker/store.py",
        {"columns(sorted(rows, key=lambda row: row[0]), width)": "columns(rows, width)"},
        [f"{LOCKS}::test_two_that_record_the_same_claims_in_opposite_orders_do_not_deadlock"],
        by=CONTENTION,
    ),
    Mutation(
        "the start fence of what may be sent only once",
        "services/worker/delivery.py",
        {"if claim.at_most_once or tick() - claim.asked_at > FRESH:": "if tick() - claim.asked_at > FRESH:"},
        [f"{START_FENCE}::test_a_call_that_may_be_made_only_once_begins_after_its_start_was_written"],
    ),
    Mutation(
        "the wait of the sweep after a start of the database",
        f"{WORKER}/lock_expired_claims.sql",
        {"pg_catalog.pg_postmaster_start_time() < now() - $1::interval": "$1::interval IS NOT NULL"},
        [f"{RECOVERY}::test_nothing_is_expired_for_one_lease_after_the_database_started"],
    ),
    Mutation(
        "the wait of the sweep after a start of the worker",
        "services/worker/leases.py",
        {"return self._stood_still or tick() - self._cut_off_at < self.interval": "return False"},
        [f"{RECOVERY}::test_a_worker_that_has_just_started_does_not_sweep_at_once"],
    ),
    Mutation(
        "the wait of the sweep after the worker stood still",
        "services/worker/leases.py",
        {"return tick() - self._renewed_at > 2 * self.interval": "return False"},
        [
            "tests/integration/test_sweeps.py::test_a_worker_that_stood_still_renews_before_it_sweeps[sweep]",
            "tests/integration/test_sweeps.py::test_a_worker_that_stood_still_renews_before_it_sweeps[renewal]",
        ],
    ),
    Mutation(
        "one reconciliation",
        "services/worker/outcome.py",
        {" and not held.reconciled": ""},
        ["tests/unit/test_outcome.py::test_nothing_that_counts_goes_on_for_ever"],
    ),
    Mutation(
        "the revisions of a watcher",
        "services/scheduler/watch.py",
        {"            if news.revision <= self._revision:\n                return\n": ""},
        ["tests/unit/test_watch.py::test_who_comes_with_newer_news_is_never_told_older"],
    ),
    Mutation(
        "that content is looked for behind the lock",
        "shared/migrations/0007_redrive.sql",
        {"LANGUAGE sql VOLATILE STRICT": "LANGUAGE sql STABLE STRICT"},
        [f"{REDRIVE}::test_a_content_that_is_erased_while_a_redrive_waits_is_missed_at_once[postgres]"],
        by=NOT_REFUSED,
    ),
    Mutation(
        "that a claim asks what suppresses the address",
        f"{WORKER}/claim_due.sql",
        {"s.tenant_id = n.tenant_id": "s.tenant_id IS NULL"},
        [f"{SUPPRESSIONS}::test_a_required_category_is_sent_to_whoever_opted_out_and_nobody_else[False]"],
    ),
    Mutation(
        "that what is required goes only past an opt-out, in a claim",
        f"{WORKER}/claim_probe.sql",
        {"      AND NOT (said.source = 'OPTED_OUT' AND ": "      AND NOT ("},
        [f"{SUPPRESSIONS}::test_a_required_category_is_sent_to_whoever_opted_out_and_nobody_else[True]"],
    ),
    Mutation(
        "that what is required goes only past an opt-out, at the door",
        f"{SCHEDULER}/look_up_keys.sql",
        {"      AND NOT (said.source = 'OPTED_OUT' AND ": "      AND NOT ("},
        [f"{SUPPRESSIONS}::test_a_required_category_is_accepted_for_whoever_opted_out_and_nobody_else"],
    ),
    Mutation(
        "that whom a notification is written for is held",
        f"{SCHEDULER}/insert_notifications.sql",
        {"    FOR KEY SHARE\n": ""},
        [
            f"{ERASURE}::test_what_is_written_while_he_is_erased_is_erased",
            f"{ERASURE}::test_what_comes_once_he_is_held_finds_nobody",
        ],
    ),
    Mutation(
        "that who has no address is told so before who must not be sent to",
        "services/scheduler/judging.py",
        {
            "if refusal := destination.unaddressed(request, facts.person):": (
                "if not facts.suppressed_by and (refusal := destination.unaddressed(request, facts.person)):"
            ),
        },
        [f"{STEP}[RESOURCE_NOT_FOUND0]", f"{STEP}[ADDRESS_MISSING]"],
    ),
    Mutation(
        "that a refused address is written with its end",
        f"{WORKER}/end_unsent.sql",
        {"held.suppressed_as IS NOT NULL AND": "held.id IS NULL AND"},
        [f"{SUPPRESSIONS}::test_a_group_suppresses_each_address_once_and_what_stands_stays"],
    ),
    Mutation(
        "the lock of a tenant's templates",
        f"{SCHEDULER}/lock_templates.sql",
        {"pg_advisory_xact_lock(": "pg_advisory_xact_lock_shared("},
        ["tests/integration/test_templates.py::test_whoever_writes_a_tenants_templates_waits_for_whoever_does"],
    ),
    Mutation(
        "that a worker serves no lane that it lacks a credential for",
        "services/worker/shared_lane.py",
        {"        return self._unfit is None\n": "        return True\n"},
        ["tests/unit/test_shared_lane.py::test_what_a_worker_lacks_opens_the_breaker_once_and_nothing_is_claimed"],
    ),
    Mutation(
        "that what went in counts in its tenant's quota",
        f"{SCHEDULER}/charge_buckets.sql",
        {"pending = b.pending + spent.count": "pending = b.pending"},
        [f"{ACCEPT_LIMITS}::test_64_callers_of_two_schedulers_get_what_there_is_and_not_one_more[a quota]"],
    ),
)

THIRD_COPY = (
    Mutation(
        "the trigger that counts ends",
        "shared/migrations/0008_totals.sql",
        {
            "CREATE TRIGGER count_ends AFTER INSERT ON notifyqueue.webhook_events\n"
            "  REFERENCING NEW TABLE AS new_events\n"
            "  FOR EACH STATEMENT EXECUTE FUNCTION notifyqueue.count_ends();\n": ""
        },
        [f"{CONSTRAINTS}::test_a_statement_that_ends_several_leaves_one_count_for_each_way"],
    ),
    Mutation(
        "the lock of the claim",
        f"{WORKER}/claim_due.sql",
        {
            "    LIMIT 64\n    FOR UPDATE SKIP LOCKED\n": "    LIMIT 64\n",
            "WHERE n.id = taken.id AND n.status = 'PENDING'\n": "WHERE n.id = taken.id\n",
        },
        [f"{CLAIMS}::test_sixteen_claimers_get_disjoint_claims_and_everything_once[8]"],
        by=("assert", BAD_ITEM),  # one is claimed more often than it may have attempts
    ),
    Mutation(
        "that expired claims are counted",
        f"{WORKER}/retry_later.sql",
        {"expiries = n.expiries + held.expired::int, ": ""},
        [f"{RECOVERY}::test_one_poison_among_many_takes_nobody_with_it"],
    ),
    Mutation(
        "that what may have been delivered ends under at most once",
        "services/worker/outcome.py",
        {"    if unknown and held.at_most_once:\n": "    if unknown and held.at_most_once and held.reconciled:\n"},
        ["tests/unit/test_outcome.py::test_at_most_once_ends_where_it_may_have_been_delivered"],
    ),
    Mutation(
        "the start fence of what comes late to its call",
        "services/worker/delivery.py",
        {"if claim.at_most_once or tick() - claim.asked_at > FRESH:": "if claim.at_most_once:"},
        [f"{START_FENCE}::test_what_was_taken_over_before_its_call_is_not_sent"],
    ),
    Mutation(
        "the key that providers deduplicate on",
        "services/worker/attempt.py",
        {"Message(claim.notification_id,": "Message(claim.claim_token,"},
        [f"{FAULTS}::test_a_claim_whose_answer_was_lost_is_given_back_and_sent_on_its_first_attempt"],
    ),
    Mutation(
        "the order of keys",
        f"{SCHEDULER}/insert_notifications.sql",
        {'  ORDER BY new.tenant_id COLLATE "C", new.idempotency_key COLLATE "C"\n': ""},
        [f"{IDEMPOTENCY}::test_groups_that_share_keys_do_not_deadlock"],
        by=(CONTENTION, LOCKED),  # whichever PostgreSQL notices first
    ),
    Mutation(
        "that a template is rendered before the write",
        "services/scheduler/accept.py",
        {
            "rendered = await self._render(new, facts)\n": "rendered: Mapping[Key, Rendered | ApiError] = {}\n",
        },
        ["tests/integration/test_accept_templates.py::test_what_was_rendered_is_stored_with_the_version_it_came_from"],
    ),
    Mutation(
        "that who must not be sent to is refused before the limit",
        "services/scheduler/judging.py",
        {
            "if refusal := _judge(candidate, facts[key]):": (
                "if (refusal := _judge(candidate, facts[key])) and not facts[key].limit:"
            ),
        },
        [f"{STEP}[RECIPIENT_OPTED_OUT]"],
    ),
)

COPIES: Sequence[Sequence[Mutation]] = (FIRST_COPY, SECOND_COPY, THIRD_COPY)
