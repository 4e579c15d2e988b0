"""The second copy."""

from tests.mutations.catalogue.mutation import (
    ACCEPT_LIMITS,
    BAD_ITEM,
    CLAIMS,
    CONSTRAINTS,
    CONTENTION,
    ERASURE,
    LANES,
    LOCKS,
    NOT_REFUSED,
    RECOVERY,
    REDRIVE,
    SCHEDULER,
    START_FENCE,
    STEP,
    SUPPRESSIONS,
    WORKER,
    Mutation,
)

MUTATIONS = (
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
