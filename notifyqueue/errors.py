"""Every way in which a call fails: one class, one reason (proto/notifyqueue/v1/errors.proto says what each means).

NotifyQueueError              any other: of a newer server, or of something between here and it
├── RequestInvalid            REQUEST_INVALID, with `violations`
├── PageTokenInvalid          PAGE_TOKEN_INVALID
├── TemplateRenderFailed      TEMPLATE_RENDER_FAILED
├── ResourceNotFound          RESOURCE_NOT_FOUND
├── IdempotencyKeyReused      IDEMPOTENCY_KEY_REUSED
├── StatusConflict            STATUS_CONFLICT
├── NoLongerSendable          NO_LONGER_SENDABLE
├── RecipientOptedOut         RECIPIENT_OPTED_OUT
├── AddressSuppressed         ADDRESS_SUPPRESSED
├── AddressMissing            ADDRESS_MISSING
├── TenantLimitExceeded       TENANT_LIMIT_EXCEEDED
├── ServerOverloaded          SERVER_OVERLOADED
├── QuotaExceeded             QUOTA_EXCEEDED
├── Unavailable               nobody answered, or the connection was lost
│   ├── DatabaseUnavailable   DATABASE_UNAVAILABLE
│   └── ServerDraining        SERVER_DRAINING
├── CredentialInvalid         CREDENTIAL_INVALID
├── RoleMissing               ROLE_MISSING
├── DeadlineExceeded          DEADLINE_EXCEEDED, or no answer in time
├── MethodUnknown             METHOD_UNKNOWN
└── Internal                  INTERNAL
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import errors_pb2, scheduler_pb2

DOMAIN = "notifyqueue"
DETAILS = "grpc-status-details-bin"

# What a call may be repeated after, unchanged, without knowing more. Others say when by `retry_after`.
PASSING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

_CODES = {code.value[0]: code for code in grpc.StatusCode}

Detail = TypeVar("Detail", bound=Message)


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with one field of a request."""

    field: str
    problem: str


class NotifyQueueError(Exception):
    """A call that failed. `reason` is the server's own, or empty where no server of Notify Queue said anything."""

    of_class: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        request_id: str = "",
        metadata: Mapping[str, str] = MappingProxyType({}),
        violations: Sequence[Violation] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or self.of_class
        self.request_id = request_id
        self.metadata = dict(metadata)
        self.violations = tuple(violations)
        self.retry_after = retry_after

    def __str__(self) -> str:
        named = [self.reason or self.code.name]
        if self.request_id:
            named.append(f"request {self.request_id}")
        return f"{self.message} ({', '.join(named)})"

    @property
    def temporary(self) -> bool:
        """Whether the same call, repeated later as it was, may succeed."""
        return self.retry_after is not None or self.code in PASSING


class RequestInvalid(NotifyQueueError):
    of_class = "REQUEST_INVALID"


class PageTokenInvalid(NotifyQueueError):
    of_class = "PAGE_TOKEN_INVALID"


class TemplateRenderFailed(NotifyQueueError):
    of_class = "TEMPLATE_RENDER_FAILED"


class ResourceNotFound(NotifyQueueError):
    of_class = "RESOURCE_NOT_FOUND"


class IdempotencyKeyReused(NotifyQueueError):
    """`metadata["notification_id"]` is the notification that has the key."""

    of_class = "IDEMPOTENCY_KEY_REUSED"


class StatusConflict(NotifyQueueError):
    """`metadata["status"]` is the status that it has."""

    of_class = "STATUS_CONFLICT"


class NoLongerSendable(NotifyQueueError):
    """`metadata["cause"]` is EXPIRED or CONTENT_ERASED."""

    of_class = "NO_LONGER_SENDABLE"


class RecipientOptedOut(NotifyQueueError):
    of_class = "RECIPIENT_OPTED_OUT"


class AddressSuppressed(NotifyQueueError):
    of_class = "ADDRESS_SUPPRESSED"


class AddressMissing(NotifyQueueError):
    of_class = "ADDRESS_MISSING"


class TenantLimitExceeded(NotifyQueueError):
    of_class = "TENANT_LIMIT_EXCEEDED"


class ServerOverloaded(NotifyQueueError):
    of_class = "SERVER_OVERLOADED"


class QuotaExceeded(NotifyQueueError):
    of_class = "QUOTA_EXCEEDED"


class Unavailable(NotifyQueueError):
    """Nobody answered. Whether a write happened is not known: repeat it with the same idempotency key."""


class DatabaseUnavailable(Unavailable):
    of_class = "DATABASE_UNAVAILABLE"


class ServerDraining(Unavailable):
    of_class = "SERVER_DRAINING"


class CredentialInvalid(NotifyQueueError):
    of_class = "CREDENTIAL_INVALID"


class RoleMissing(NotifyQueueError):
    of_class = "ROLE_MISSING"


class DeadlineExceeded(NotifyQueueError):
    """No answer in time. Whether a write happened is not known: repeat it with the same idempotency key."""

    of_class = "DEADLINE_EXCEEDED"


class MethodUnknown(NotifyQueueError):
    of_class = "METHOD_UNKNOWN"


class Internal(NotifyQueueError):
    of_class = "INTERNAL"


def _classes(root: type[NotifyQueueError]) -> Iterator[type[NotifyQueueError]]:
    for found in root.__subclasses__():
        yield found
        yield from _classes(found)


BY_REASON = {found.of_class: found for found in _classes(NotifyQueueError) if found.of_class}

# Where the answer has no reason, for it never came or came from something in between.
BY_CODE = {grpc.StatusCode.UNAVAILABLE: Unavailable, grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded}


def from_call(error: grpc.aio.AioRpcError) -> NotifyQueueError:
    """What a failed call means."""
    trailers = dict(error.trailing_metadata() or ())
    status = _status(trailers.get(DETAILS))
    info = _detail(status, error_details_pb2.ErrorInfo)
    reason = info.reason if info.domain == DOMAIN else ""
    retry = _detail(status, error_details_pb2.RetryInfo)
    kind = BY_REASON.get(reason) or BY_CODE.get(error.code(), NotifyQueueError)
    return kind(
        error.details() or "no answer",
        code=error.code(),
        reason=reason,
        request_id=_detail(status, error_details_pb2.RequestInfo).request_id or _text(trailers.get("request-id")),
        metadata=info.metadata,
        violations=[
            Violation(found.field, found.description)
            for found in _detail(status, error_details_pb2.BadRequest).field_violations
        ],
        retry_after=retry.retry_delay.ToTimedelta() if retry.HasField("retry_delay") else None,
    )


def from_refusal(refused: scheduler_pb2.BatchRefused) -> NotifyQueueError:
    """What an item that a batch refused means: what a call of its own would have raised."""
    name = errors_pb2.ErrorReason.Name(refused.reason) if refused.reason in errors_pb2.ErrorReason.values() else ""
    reason = name.removeprefix("ERROR_REASON_")
    code = _CODES.get(refused.code, grpc.StatusCode.UNKNOWN)
    kind = BY_REASON.get(reason) or BY_CODE.get(code, NotifyQueueError)
    return kind(
        refused.message,
        code=code,
        reason=reason if reason in BY_REASON else "",
        metadata=refused.metadata,
        violations=[Violation(found.field, found.description) for found in refused.violations],
        retry_after=refused.retry_delay.ToTimedelta() if refused.HasField("retry_delay") else None,
    )


def _status(details: str | bytes | None) -> status_pb2.Status:
    try:
        return status_pb2.Status.FromString(details if isinstance(details, bytes) else b"")
    except DecodeError:  # of something between here and the server: its code and message still stand
        return status_pb2.Status()


def _detail(status: status_pb2.Status, kind: type[Detail]) -> Detail:
    """The detail of this kind, or an empty one."""
    found = kind()
    for packed in status.details:
        if packed.TypeName() == found.DESCRIPTOR.full_name:
            try:
                packed.Unpack(found)
            except DecodeError:
                return kind()
            break
    return found


def _text(value: str | bytes | None) -> str:
    return value if isinstance(value, str) else ""
