"""The client's errors: none of the contract's reasons is missing, and each says what to do next."""

import re
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from notifyqueue import NotifyQueueError, errors
from notifyqueue.channel import is_loopback
from notifyqueue.cli import exits
from notifyqueue.errors import BY_REASON, Violation, from_call, from_refusal
from notifyqueue.v1 import errors_pb2, scheduler_pb2
from tests.scripted_server import Refusal

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "ERROR_REASON_"
REASONS = {name.removeprefix(PREFIX) for name in errors_pb2.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118


def failed(refusal: Refusal, *, trailers: tuple[tuple[str, str | bytes], ...] | None = None) -> AioRpcError:
    found = trailers or (("grpc-status-details-bin", refusal.status().SerializeToString()), ("request-id", "plain"))
    return AioRpcError(refusal.code, Metadata(), Metadata(*found), details=refusal.message)


def test_every_reason_of_the_contract_has_a_class() -> None:
    assert set(BY_REASON) == REASONS


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_a_reason_becomes_its_class_in_a_call_and_in_a_batch(reason: str) -> None:
    found = from_call(failed(Refusal(StatusCode.INTERNAL, reason)))
    refused = scheduler_pb2.BatchRefused(code=13, reason=errors_pb2.ErrorReason.Value(PREFIX + reason))
    assert type(found) is type(from_refusal(refused)) is BY_REASON[reason]
    assert found.reason == from_refusal(refused).reason == reason


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(found.__name__ for found in (*BY_REASON.values(), errors.Unavailable))


def test_an_item_of_a_batch_says_what_a_call_of_its_own_would_have() -> None:
    refused = scheduler_pb2.BatchRefused(
        code=8,
        reason=errors_pb2.ERROR_REASON_TENANT_LIMIT_EXCEEDED,
        message="too fast",
        metadata={"limit": "tenant"},
        violations=[scheduler_pb2.FieldViolation(field="address", description="is required")],
        retry_delay=Duration(seconds=3),
    )
    found = from_refusal(refused)
    assert isinstance(found, errors.TenantLimitExceeded)
    assert (found.message, found.code, found.metadata) == (
        "too fast",
        StatusCode.RESOURCE_EXHAUSTED,
        {"limit": "tenant"},
    )
    assert found.violations == (Violation("address", "is required"),)
    assert found.retry_after is not None
    assert found.retry_after.total_seconds() == 3


def test_a_newer_server_refuses_an_item_with_a_reason_that_is_not_known() -> None:
    found = from_refusal(scheduler_pb2.BatchRefused(code=99, reason=999, message="new"))  # type: ignore[arg-type]
    assert (type(found), found.code, found.reason) == (NotifyQueueError, StatusCode.UNKNOWN, "")


@pytest.mark.parametrize("details", [b"\xff\xff", b"", None])
def test_details_that_are_no_details_leave_code_and_message(details: bytes | None) -> None:
    trailers = (("request-id", "plain"),) if details is None else (("grpc-status-details-bin", details),)
    found = from_call(failed(Refusal(StatusCode.UNAVAILABLE, message="gone"), trailers=trailers))
    assert (type(found), found.message) == (errors.Unavailable, "gone")


def test_a_detail_that_cannot_be_read_is_none() -> None:
    status = status_pb2.Status(code=14)
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")
    trailers = (("grpc-status-details-bin", status.SerializeToString()),)
    assert from_call(failed(Refusal(StatusCode.INTERNAL), trailers=trailers)).reason == ""


def test_the_request_id_is_also_in_a_plain_trailer() -> None:
    assert from_call(failed(Refusal(StatusCode.INTERNAL, "INTERNAL"))).request_id == "plain"
    asked = error_details_pb2.RequestInfo(request_id="detailed")
    assert from_call(failed(Refusal(StatusCode.INTERNAL, details=(asked,)))).request_id == "detailed"


def test_only_what_may_pass_is_temporary() -> None:
    soon = (error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1)),)
    assert from_call(failed(Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED", details=soon))).temporary
    assert not from_call(failed(Refusal(StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"))).temporary
    assert from_call(failed(Refusal(StatusCode.UNAVAILABLE))).temporary
    assert not from_call(failed(Refusal(StatusCode.INTERNAL, "INTERNAL"))).temporary


def test_every_error_has_an_exit_code_and_advice() -> None:
    assert set(exits.BY_CODE) == set(grpc.StatusCode)
    assert set(exits.BY_CODE.values()) <= set(exits.MEANINGS)
    assert set(exits.ADVICE) == {*BY_REASON.values(), errors.Unavailable}


def test_a_quota_does_not_pass_by_waiting() -> None:
    quota = from_call(failed(Refusal(StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")))
    overload = from_call(failed(Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED")))
    assert (exits.exit_code(quota), exits.exit_code(overload)) == (exits.CONFLICT, exits.TRY_AGAIN)


def test_the_page_has_the_exit_codes_as_they_are() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert dict(re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)) == {
        str(code): meaning for code, meaning in exits.MEANINGS.items()
    }


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:50051", "127.9.9.9:1", "localhost:1", "[::1]:1", "ipv4:127.0.0.1:1", "ipv6:[::1]:1",
        "dns:///localhost:1", "dns://8.8.8.8/localhost:1", "unix:/run/socket", "ipv4:127.0.0.1:1,127.0.0.2:1",
    ],
)  # fmt: skip
def test_this_machine_is_called_in_plain_text(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:1", "scheduler:1", "localhost.example.com:1", "[::]:1", "0.0.0.0:1", "dns:///scheduler:1", "",
        "ipv4:127.0.0.1:1,10.0.0.1:1", "127.0.0.1.example.com:1", "xds:///localhost", "dns://127.0.0.1/scheduler:1",
    ],
)  # fmt: skip
def test_another_machine_is_not(address: str) -> None:
    assert not is_loopback(address)
