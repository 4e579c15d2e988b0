"""The third copy."""

from tests.mutations.catalogue.mutation import (
    BAD_ITEM,
    CLAIMS,
    CONSTRAINTS,
    CONTENTION,
    FAULTS,
    IDEMPOTENCY,
    LOCKED,
    RECOVERY,
    SCHEDULER,
    START_FENCE,
    STEP,
    WORKER,
    Mutation,
)

MUTATIONS = (
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
