"""The ways in which a call is refused: one class, one reason, and nothing of what the caller sent."""

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from google.rpc import error_details_pb2

from notifyqueue.v1 import errors_pb2
from shared import errors
from shared.errors import (
    MAX_VIOLATIONS,
    AddressMissing,
    AddressSuppressed,
    ApiError,
    CredentialInvalid,
    DatabaseUnavailable,
    DeadlineExceeded,
    IdempotencyKeyReused,
    Internal,
    MethodUnknown,
    NoLongerSendable,
    PageTokenInvalid,
    QuotaExceeded,
    RecipientOptedOut,
    RequestInvalid,
    ResourceNotFound,
    RoleMissing,
    ServerDraining,
    ServerOverloaded,
    StatusConflict,
    TemplateRenderFailed,
    TenantLimitExceeded,
    Violation,
)

CONTRACT = Path(__file__).resolve().parents[2] / "proto/notifyqueue/v1/errors.proto"
PREFIX = "ERROR_REASON_"

ID = UUID("0192f0c1-7e6a-7b1c-8000-0123456789ab")
SAMPLES = [
    RequestInvalid([Violation("email.subject", "is required")]),
    PageTokenInvalid(),
    TemplateRenderFailed([], ["name"], template="shipped", version="1", locale="en"),
    TemplateRenderFailed([Violation("email.subject", "is required")], [], template="shipped", version="1", locale="en"),
    ResourceNotFound("notification"),
    IdempotencyKeyReused(ID),
    StatusConflict(ID, "SENT"),
    NoLongerSendable(ID, "EXPIRED"),
    RecipientOptedOut(),
    AddressSuppressed(),
    AddressMissing(),
    TenantLimitExceeded(timedelta(milliseconds=20)),
    ServerOverloaded(),
    QuotaExceeded("endpoints"),
    CredentialInvalid(),
    RoleMissing(),
    DatabaseUnavailable(),
    ServerDraining(),
    DeadlineExceeded(),
    MethodUnknown(),
    Internal(),
]


def classes(base: type[ApiError] = ApiError) -> Iterator[type[ApiError]]:
    for child in base.__subclasses__():
        if not child.__name__.startswith("_"):
            yield child
        yield from classes(child)


def drawn() -> set[tuple[str, str, str]]:
    """The tree in the module's docstring."""
    return set(re.findall(r"[├└]── (\w+) +(\w+) +(\w+)", errors.__doc__ or ""))


def documented() -> dict[str, str]:
    """Reason -> code, as the contract's comments say: the first word of each."""
    text = CONTRACT.read_text("utf-8")
    found = re.findall(rf"  // ([A-Z_]+)\.(?:.*\n  //)*.*\n  {PREFIX}(\w+) = ", text)
    return {reason: code for code, reason in found}


def test_the_drawn_tree_is_the_tree() -> None:
    assert drawn() == {(kind.__name__, kind.code.name, kind.reason) for kind in classes()}


def test_every_reason_of_the_contract_has_a_class() -> None:
    contract = set(errors_pb2.ErrorReason.keys()) - {f"{PREFIX}UNSPECIFIED"}
    assert contract == {PREFIX + kind.reason for kind in classes()}


def test_one_class_is_one_reason() -> None:
    reasons = [kind.reason for kind in classes()]
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("kind", list(classes()))
def test_the_code_is_the_one_that_the_contract_names(kind: type[ApiError]) -> None:
    assert documented()[kind.reason] == kind.code.name


def test_every_class_has_its_sample_here() -> None:
    assert {type(sample) for sample in SAMPLES} == set(classes())


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.reason)
def test_a_message_is_one_short_line(error: ApiError) -> None:
    assert error.message == str(error)
    assert 0 < len(error.message) < 200
    assert error.message.isprintable()


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.reason)
def test_nothing_but_ids_and_our_own_words_can_be_put_into_a_message(error: ApiError) -> None:
    parameters = inspect.signature(type(error)).parameters
    names = {"violations", "notification_id", "status", "resource", "cause", "retry_after", "missing", "which"}
    assert set(parameters) <= names


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.reason)
def test_what_made_it_happen_is_not_in_it(error: ApiError) -> None:
    try:
        raise error from ValueError("hunter2")
    except ApiError as raised:
        shown = [raised.message, *raised.metadata.values(), *map(repr, raised.details())]
    assert "hunter2" not in " ".join(shown)


@pytest.mark.parametrize(
    ("error", "metadata"),
    [
        (IdempotencyKeyReused(ID), {"notification_id": str(ID)}),
        (StatusConflict(ID, "SENT"), {"notification_id": str(ID), "status": "SENT"}),
        (ResourceNotFound("notification"), {"resource": "notification"}),
        (QuotaExceeded("endpoints"), {"resource": "endpoints"}),
    ],
)
def test_what_a_program_needs_is_in_the_metadata(error: ApiError, metadata: dict[str, str]) -> None:
    assert error.metadata == metadata


@pytest.mark.parametrize("error", [ServerOverloaded(), DatabaseUnavailable(), ServerDraining()])
def test_what_may_be_tried_again_says_when(error: ApiError) -> None:
    (info,) = error.details()
    assert isinstance(info, error_details_pb2.RetryInfo)
    assert info.retry_delay.ToTimedelta() == timedelta(seconds=1)


def test_who_is_over_its_limit_is_told_its_own_time() -> None:
    (info,) = TenantLimitExceeded(timedelta(seconds=90, microseconds=1)).details()
    assert isinstance(info, error_details_pb2.RetryInfo)
    assert info.retry_delay.ToTimedelta() == timedelta(seconds=90, microseconds=1)


def violations(count: int) -> list[Violation]:
    return [Violation(f"labels[{number}]", "is required") for number in range(count)]


def test_every_violation_is_told_by_its_field() -> None:
    (bad,) = RequestInvalid(violations(3)).details()
    assert isinstance(bad, error_details_pb2.BadRequest)
    told = [(violation.field, violation.description) for violation in bad.field_violations]
    assert told == [(f"labels[{number}]", "is required") for number in range(3)]


def test_at_most_so_many_violations_are_told() -> None:
    (bad,) = RequestInvalid(violations(500)).details()
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert len(bad.field_violations) == MAX_VIOLATIONS == 20
    assert bad.ByteSize() < 4096, "a response has at most 8 KiB of metadata"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RequestInvalid(violations(1)), "labels[0]: is required"),
        (RequestInvalid(violations(3)), "labels[0]: is required (and 2 more)"),
        (RequestInvalid([Violation("", "not a message of this type")]), "request: not a message of this type"),
    ],
)
def test_the_message_names_the_first_violation_and_counts_the_others(error: ApiError, message: str) -> None:
    assert error.message == message


@pytest.mark.parametrize("error", [DatabaseUnavailable(), DeadlineExceeded()])
def test_what_may_have_written_says_so(error: ApiError) -> None:
    assert error.message.endswith("; a write may have happened")


NOT_WRITTEN = [
    *(ServerOverloaded(), ServerDraining()),
    *(RecipientOptedOut(), AddressSuppressed(), AddressMissing(), TenantLimitExceeded(timedelta(seconds=1))),
]


@pytest.mark.parametrize("error", NOT_WRITTEN, ids=lambda error: error.reason)
def test_what_has_not_written_says_so(error: ApiError) -> None:
    assert error.message.endswith("; nothing was done")
