"""Whether a webhook came from Notify Queue, as it was sent, and lately (Standard Webhooks v1).

    event = webhooks.verify(body, request.headers, secret)

Answer 2xx only for what was verified, and drop an `event_id` that was seen before: each is posted until it is answered.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

PREFIX = "whsec_"
KEY_SIZES = range(24, 65)  # bytes
TOLERANCE = timedelta(minutes=5)
SIGNATURES = range(1, 21)

# As it is signed, so only the one spelling of a number.
TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,10}", re.ASCII)


class WebhookError(ValueError):
    """A webhook that must not be believed. No message repeats what it said."""


class HeadersInvalid(WebhookError):
    """A header is missing or malformed."""


class TimestampInvalid(WebhookError):
    """It was sent too long ago, or will be: somebody repeats an old one, or a clock is wrong."""


class SignatureInvalid(WebhookError):
    """No signature fits: it is somebody else's, was changed on the way, or the secret is another endpoint's."""


class PayloadInvalid(WebhookError):
    """It is signed, and no event of Notify Queue."""


class SecretInvalid(ValueError):
    """Not a secret that CreateEndpoint answered."""

    def __init__(self) -> None:
        super().__init__(f"a secret is {PREFIX} and the base64 of 24 to 64 bytes")


@dataclass(frozen=True, slots=True)
class Event:
    """How a notification ended."""

    type: str
    """`notification.` and the status in lower case."""
    timestamp: datetime
    """When it ended."""
    event_id: str
    """The same each time that this is posted."""
    notification_id: str
    status: str
    attempt_count: int
    channel: str
    failure_reason: str | None
    reference: str | None
    labels: Mapping[str, str]


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Event:
    """The event of a webhook. Raises WebhookError where it is not to be believed, SecretInvalid for what is no secret.

    `body` is what arrived, byte for byte: parsed and written again, it would not be what was signed. The names of
    `headers` may be in any case. Several secrets are for the time in which one replaces another.
    """
    keys = [_key(each) for each in ([secret] if isinstance(secret, str) else secret)]
    given = {name.lower(): value for name, value in headers.items()}
    id_, timestamp, signatures = (
        _header(given, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if not TIMESTAMP.fullmatch(timestamp):
        raise HeadersInvalid("webhook-timestamp: not a time in seconds")
    _check_signature(f"{id_}.{timestamp}.".encode(errors="replace") + body, signatures, keys)
    age = (now or datetime.now(UTC)).timestamp() - int(timestamp)
    if abs(age) > tolerance.total_seconds():
        raise TimestampInvalid("webhook-timestamp: too long ago" if age > 0 else "webhook-timestamp: in the future")
    return _event(body)


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise SecretInvalid from None
    if not secret.startswith(PREFIX) or len(key) not in KEY_SIZES:
        raise SecretInvalid
    return key


def _header(given: Mapping[str, str], name: str) -> str:
    if not (value := given.get(name, "")):
        raise HeadersInvalid(f"{name}: is missing")
    return value


def _check_signature(signed: bytes, header: str, keys: Sequence[bytes]) -> None:
    # Other versions, as the asymmetric `v1a`, may stand beside ours.
    given = [value for version, _, value in (part.partition(",") for part in header.split()) if version == "v1"]
    if len(given) not in SIGNATURES:
        raise HeadersInvalid("webhook-signature: not 1 to 20 signatures of version v1")
    expected = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    # All are compared, each in constant time: how long this takes says nothing about which one nearly fitted.
    if not sum(hmac.compare_digest(value.encode(errors="replace"), fitting) for value in given for fitting in expected):
        raise SignatureInvalid("webhook-signature: none fits the body and the secret")


def _event(body: bytes) -> Event:
    try:
        whole: dict[str, Any] = json.loads(body)
        data: dict[str, Any] = whole["data"]
        return Event(
            type=str(whole["type"]),
            timestamp=datetime.fromisoformat(whole["timestamp"]),
            event_id=str(data["event_id"]),
            notification_id=str(data["notification_id"]),
            status=str(data["status"]),
            attempt_count=int(data["attempt_count"]),
            channel=str(data["channel"]),
            failure_reason=data["failure_reason"],
            reference=data["reference"],
            labels=dict(data["labels"] or {}),
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        raise PayloadInvalid("the body is no event of Notify Queue") from None
