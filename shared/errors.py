"""Every way in which a call is refused: one class, one reason (proto/notifyqueue/v1/errors.proto says what each means).

ApiError
├── RequestInvalid          INVALID_ARGUMENT     REQUEST_INVALID
├── PageTokenInvalid        INVALID_ARGUMENT     PAGE_TOKEN_INVALID
├── TemplateRenderFailed    INVALID_ARGUMENT     TEMPLATE_RENDER_FAILED
├── ResourceNotFound        NOT_FOUND            RESOURCE_NOT_FOUND
├── IdempotencyKeyReused    ALREADY_EXISTS       IDEMPOTENCY_KEY_REUSED
├── StatusConflict          FAILED_PRECONDITION  STATUS_CONFLICT
├── NoLongerSendable        FAILED_PRECONDITION  NO_LONGER_SENDABLE
├── RecipientOptedOut       FAILED_PRECONDITION  RECIPIENT_OPTED_OUT
├── AddressSuppressed       FAILED_PRECONDITION  ADDRESS_SUPPRESSED
├── AddressMissing          FAILED_PRECONDITION  ADDRESS_MISSING
├── TenantLimitExceeded     RESOURCE_EXHAUSTED   TENANT_LIMIT_EXCEEDED
├── ServerOverloaded        RESOURCE_EXHAUSTED   SERVER_OVERLOADED
├── QuotaExceeded           RESOURCE_EXHAUSTED   QUOTA_EXCEEDED
├── CredentialInvalid       UNAUTHENTICATED      CREDENTIAL_INVALID
├── RoleMissing             PERMISSION_DENIED    ROLE_MISSING
├── DatabaseUnavailable     UNAVAILABLE          DATABASE_UNAVAILABLE
├── ServerDraining          UNAVAILABLE          SERVER_DRAINING
├── DeadlineExceeded        DEADLINE_EXCEEDED    DEADLINE_EXCEEDED
├── MethodUnknown           UNIMPLEMENTED        METHOD_UNKNOWN
└── Internal                INTERNAL             INTERNAL

Messages and metadata are shown to callers: ids and names of fields, never the values they sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from google.protobuf import duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode

# google.rpc.BadRequest of a request with hundreds of faults must fit in the metadata of a response.
MAX_VIOLATIONS = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with one field of a request: `field` is its path as in the proto, `problem` names no value."""

    field: str
    problem: str


class ApiError(Exception):
    """A refusal that the caller is told about."""

    code: ClassVar[StatusCode]
    reason: ClassVar[str]

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = metadata

    def details(self) -> Sequence[Message]:
        """What goes into the status besides ErrorInfo and RequestInfo."""
        return ()


class RequestInvalid(ApiError):
    code = StatusCode.INVALID_ARGUMENT
    reason = "REQUEST_INVALID"

    def __init__(self, violations: Sequence[Violation]) -> None:
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        super().__init__(f"{first.field or 'request'}: {first.problem}{more}")
        self.violations = tuple(violations)

    def details(self) -> Sequence[Message]:
        return _bad_request(self.violations)


def _bad_request(violations: Sequence[Violation]) -> Sequence[Message]:
    fields = [
        error_details_pb2.BadRequest.FieldViolation(field=violation.field, description=violation.problem)
        for violation in violations[:MAX_VIOLATIONS]
    ]
    return (error_details_pb2.BadRequest(field_violations=fields),)


class PageTokenInvalid(ApiError):
    code = StatusCode.INVALID_ARGUMENT
    reason = "PAGE_TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__("page_token: not a token of this list and filter; start from the first page")


class TemplateRenderFailed(ApiError):
    code = StatusCode.INVALID_ARGUMENT
    reason = "TEMPLATE_RENDER_FAILED"

    def __init__(self, violations: Sequence[Violation], missing: Sequence[str], **which: str) -> None:
        """`missing` are the names of variables."""
        names = ", ".join(missing)
        told = [f"missing variables: {names}"] if missing else [f"{each.field}: {each.problem}" for each in violations]
        super().__init__(f"the template cannot be rendered: {told[0]}", **which | ({"missing": names} if names else {}))
        self.violations = tuple(violations)

    def details(self) -> Sequence[Message]:
        return _bad_request(self.violations) if self.violations else ()


class ResourceNotFound(ApiError):
    code = StatusCode.NOT_FOUND
    reason = "RESOURCE_NOT_FOUND"

    def __init__(self, resource: str) -> None:
        super().__init__(f"no such {resource}", resource=resource)


class IdempotencyKeyReused(ApiError):
    code = StatusCode.ALREADY_EXISTS
    reason = "IDEMPOTENCY_KEY_REUSED"

    def __init__(self, notification_id: UUID) -> None:
        super().__init__("idempotency_key: was used for a different request", notification_id=str(notification_id))


class StatusConflict(ApiError):
    code = StatusCode.FAILED_PRECONDITION
    reason = "STATUS_CONFLICT"

    def __init__(self, notification_id: UUID, status: str) -> None:
        super().__init__(f"the notification is {status}", notification_id=str(notification_id), status=status)


class NoLongerSendable(ApiError):
    code = StatusCode.FAILED_PRECONDITION
    reason = "NO_LONGER_SENDABLE"

    def __init__(self, notification_id: UUID, cause: str) -> None:
        told = {"EXPIRED": "its time to expire has passed", "CONTENT_ERASED": "its content was erased"}
        super().__init__(
            f"the notification cannot be sent any more: {told[cause]}",
            notification_id=str(notification_id),
            cause=cause,
        )


class RecipientOptedOut(ApiError):
    code = StatusCode.FAILED_PRECONDITION
    reason = "RECIPIENT_OPTED_OUT"

    def __init__(self) -> None:
        super().__init__("the recipient opted out of this; nothing was done")


class AddressSuppressed(ApiError):
    code = StatusCode.FAILED_PRECONDITION
    reason = "ADDRESS_SUPPRESSED"

    def __init__(self) -> None:
        super().__init__("the address bounced, complained, or was blocked; nothing was done")


class AddressMissing(ApiError):
    code = StatusCode.FAILED_PRECONDITION
    reason = "ADDRESS_MISSING"

    def __init__(self) -> None:
        super().__init__("the subscriber has no address on this channel; nothing was done")


class _Later(ApiError):
    """A refusal that says when to come back."""

    retry_after = timedelta(seconds=1)

    def details(self) -> Sequence[Message]:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(self.retry_after)
        return (error_details_pb2.RetryInfo(retry_delay=delay),)


class TenantLimitExceeded(_Later):
    code = StatusCode.RESOURCE_EXHAUSTED
    reason = "TENANT_LIMIT_EXCEEDED"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("the tenant has as much as it may have for now; nothing was done")
        self.retry_after = retry_after


class ServerOverloaded(_Later):
    code = StatusCode.RESOURCE_EXHAUSTED
    reason = "SERVER_OVERLOADED"

    def __init__(self) -> None:
        super().__init__("too much is under way; nothing was done")


class QuotaExceeded(ApiError):
    code = StatusCode.RESOURCE_EXHAUSTED
    reason = "QUOTA_EXCEEDED"

    def __init__(self, resource: str) -> None:
        super().__init__(f"the tenant has as many of this as it may have: {resource}", resource=resource)


class CredentialInvalid(ApiError):
    code = StatusCode.UNAUTHENTICATED
    reason = "CREDENTIAL_INVALID"

    def __init__(self) -> None:
        super().__init__("authorization: no API key, or one that is wrong, expired or revoked")


class RoleMissing(ApiError):
    code = StatusCode.PERMISSION_DENIED
    reason = "ROLE_MISSING"

    def __init__(self) -> None:
        super().__init__("the API key's role does not allow this call")


class DatabaseUnavailable(_Later):
    code = StatusCode.UNAVAILABLE
    reason = "DATABASE_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the database did not answer; a write may have happened")


class ServerDraining(_Later):
    code = StatusCode.UNAVAILABLE
    reason = "SERVER_DRAINING"

    def __init__(self) -> None:
        super().__init__("the server is stopping; nothing was done")


class DeadlineExceeded(ApiError):
    code = StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"

    def __init__(self) -> None:
        super().__init__("the call took too long; a write may have happened")


class MethodUnknown(ApiError):
    code = StatusCode.UNIMPLEMENTED
    reason = "METHOD_UNKNOWN"

    def __init__(self) -> None:
        super().__init__("no such service or method")


class Internal(ApiError):
    code = StatusCode.INTERNAL
    reason = "INTERNAL"

    def __init__(self) -> None:
        super().__init__("internal error; quote the request id")
