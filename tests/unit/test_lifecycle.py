"""From which status a notification may go to which."""

import itertools
import re

import pytest

from notifyqueue.v1 import notification_pb2
from shared.lifecycle import ALL, AUTOMATIC, OPERATOR, TERMINAL, Status, allowed

# The way of a notification as the documentation draws it, written down a second time.
WAYS = """
PENDING -> PROCESSING CANCELLED EXPIRED FAILED SUPPRESSED
PROCESSING -> PENDING SENT FAILED DEAD_LETTERED EXPIRED SUPPRESSED
SENT ->
FAILED -> PENDING
DEAD_LETTERED -> PENDING
CANCELLED ->
EXPIRED ->
SUPPRESSED ->
"""
DRAWN = {source: set(targets.split()) for source, targets in re.findall(r"(\w+) ->(.*)", WAYS)}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(Status, Status)))
def test_exactly_the_drawn_ways_are_allowed(source: Status, target: Status) -> None:
    assert allowed(source, target) == (target in DRAWN[source])


def test_what_has_no_automatic_way_out_is_terminal() -> None:
    assert {"SENT", "FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED"} == TERMINAL


def test_only_an_operator_brings_back_what_has_ended() -> None:
    assert OPERATOR.keys() <= TERMINAL
    assert not TERMINAL & AUTOMATIC.keys()


def test_every_status_can_be_reached() -> None:
    targets = frozenset[str]().union(*AUTOMATIC.values())
    assert targets == ALL


def test_nothing_leads_from_or_to_an_unknown_status() -> None:
    assert not allowed("LOST", "PENDING")
    assert not allowed("PENDING", "LOST")


def test_the_contract_knows_the_same_statuses() -> None:
    contract = set(notification_pb2.Notification.Status.keys()) - {"STATUS_UNSPECIFIED"}
    assert {f"STATUS_{status}" for status in Status} == contract
