"""Of the third copy, too: what is told of it all."""

from tests.mutations.catalogue.mutation import RECOVERY, WORKER, Mutation

TRACES = "tests/unit/test_traces.py"

MUTATIONS = (
    Mutation(
        "the span that is stored with what is accepted",
        "services/scheduler/store.py",
        {"spans = [traces.written(candidate.trace) for candidate in candidates]": "spans = [None for _ in candidates]"},
        ["tests/integration/test_accept.py::test_the_span_that_asked_is_stored_with_what_was_accepted"],
    ),
    Mutation(
        "the quarter of an hour after which an attempt is only linked",
        f"{WORKER}/lock_expired_claims.sql",
        {"interval '15 minutes'": "interval '15 days'"},
        [f"{RECOVERY}::test_what_a_lost_worker_held_is_told_with_its_trace_and_what_stands_for_its_address"],
    ),
    Mutation(
        "the traceparent of a webhook",
        "services/dispatcher/delivery.py",
        {"        **trace,\n": ""},
        ["tests/unit/test_webhook_signature.py::test_what_is_posted_carries_its_span_and_its_signature"],
    ),
    Mutation(
        "that nobody is told of what hangs on a span that was not made",
        "shared/telemetry/tracer.py",
        {"parent.rest, parent.sampled": "SAMPLED, True"},
        [f"{TRACES}::test_below_one_that_is_not_made_none_is"],
    ),
    Mutation(
        "the list of what a line may say",
        "shared/logs.py",
        {"for name in event.keys() - FIELDS:": "for name in event.keys() - FIELDS - event.keys():"},
        ["tests/unit/test_logs.py::test_a_field_that_is_not_listed_is_left_out_and_in_tests_is_a_fault"],
    ),
    Mutation(
        "that a metric has no code of anybody's own",
        "services/worker/measured.py",
        {"return code if code in ELSEWHERE else metrics.OTHER": "return code"},
        ["tests/unit/test_metrics.py::test_a_code_is_shown_where_its_table_lists_it[remote-someones-own-other]"],
    ),
)
