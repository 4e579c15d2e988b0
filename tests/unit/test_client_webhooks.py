"""What a receiver may believe: the published vectors, the reference implementation, and nothing that is off by one."""

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from notifyqueue.webhooks import (
    Event,
    HeadersInvalid,
    PayloadInvalid,
    SecretInvalid,
    SignatureInvalid,
    TimestampInvalid,
    verify,
)
from services.dispatcher.signature import key_of, new_secret, sign
from tests.unit.test_webhook_signature import VECTORS

ID = "0192f0c1-7e6a-7b1c-8000-0123456789ab"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SENT = int(NOW.timestamp())
DATA = {
    "event_id": ID,
    "notification_id": "0192f0c1-0000-7b1c-8000-0123456789ab",
    "status": "FAILED",
    "attempt_count": 2,
    "channel": "EMAIL",
    "failure_reason": "ADDRESS_REJECTED",
    "reference": None,
    "labels": {"order": "17"},
}
BODY = json.dumps(
    {"type": "notification.failed", "timestamp": "2026-11-30T11:59:59.000001Z", "data": DATA}, separators=(",", ":")
).encode()
SECRET, OTHER = new_secret(), new_secret()


def headers(secret: str = SECRET, *, at: int = SENT, body: bytes = BODY) -> dict[str, str]:
    return {
        "Webhook-Id": ID,
        "WEBHOOK-TIMESTAMP": str(at),
        "webhook-signature": sign(key_of(secret), ID, at, body),
        "content-type": "application/json",
    }


def changed(**values: str | None) -> dict[str, str]:
    whole = {name.lower(): value for name, value in headers().items()}
    for name, value in values.items():
        del whole[name.replace("_", "-")]
        if value is not None:
            whole[name.replace("_", "-")] = value
    return whole


def test_what_the_dispatcher_signs_is_believed_and_typed() -> None:
    assert verify(BODY, headers(), SECRET, now=NOW) == Event(
        type="notification.failed",
        timestamp=datetime(2026, 11, 30, 11, 59, 59, 1, tzinfo=UTC),
        event_id=ID,
        notification_id="0192f0c1-0000-7b1c-8000-0123456789ab",
        status="FAILED",
        attempt_count=2,
        channel="EMAIL",
        failure_reason="ADDRESS_REJECTED",
        reference=None,
        labels={"order": "17"},
    )


@pytest.mark.parametrize(("secret", "webhook_id", "timestamp", "body", "signature"), VECTORS)
def test_the_published_vectors_hold(secret: str, webhook_id: str, timestamp: int, body: bytes, signature: str) -> None:
    given_ = {"webhook-id": webhook_id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}
    with pytest.raises(PayloadInvalid):  # believed, and of somebody else
        verify(body, given_, secret, now=datetime.fromtimestamp(timestamp, UTC))


@given(key=st.binary(min_size=24, max_size=64), id_=st.uuids(), reference=st.text())
def test_what_the_reference_implementation_signs_is_believed(key: bytes, id_: object, reference: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    body = json.dumps({"type": "t", "timestamp": "2026-11-30T12:00:00Z", "data": DATA | {"reference": reference}})
    now = datetime.now(UTC)
    given_ = {
        "webhook-id": str(id_),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(str(id_), now, body),
    }
    assert verify(body.encode(), given_, secret).reference == reference


def test_the_reference_implementation_believes_what_we_believe() -> None:
    now = int(time.time())
    given_ = headers(at=now)
    assert verify(BODY, given_, SECRET).event_id == ID
    assert Webhook(SECRET).verify(BODY, {name.lower(): value for name, value in given_.items()}) == json.loads(BODY)


@pytest.mark.parametrize("secrets", [[SECRET, OTHER], [OTHER, SECRET], (SECRET,)])
def test_one_of_several_secrets_is_enough(secrets: list[str]) -> None:
    assert verify(BODY, headers(), secrets, now=NOW).event_id == ID


def test_one_of_several_signatures_is_enough() -> None:
    fits = headers()["webhook-signature"]
    wrong = headers(OTHER)["webhook-signature"]
    for several in (f"{wrong} {fits}", f"{fits} {wrong}", f"v1a,AAAA {fits}", f"v1 {fits}"):
        assert verify(BODY, changed(webhook_signature=several), SECRET, now=NOW).event_id == ID


@pytest.mark.parametrize("secrets", [OTHER, [OTHER], []], ids=["another", "a list of it", "none"])
def test_another_secret_is_not(secrets: str | list[str]) -> None:
    with pytest.raises(SignatureInvalid):
        verify(BODY, headers(), secrets, now=NOW)


@pytest.mark.parametrize(
    ("body", "given_"),
    [
        (BODY + b" ", headers()),
        (BODY.replace(b"FAILED", b"SENT"), headers()),
        (b"", headers()),
        (BODY, changed(webhook_id="0192f0c1-7e6a-7b1c-8000-0123456789ac")),
        (BODY, changed(webhook_timestamp=str(SENT + 1))),
        (BODY, changed(webhook_signature="v1,")),
        (BODY, changed(webhook_signature=headers()["webhook-signature"].lower())),
        (BODY, changed(webhook_signature="v1,\udcff")),
        (BODY, changed(webhook_id="\udcff")),
    ],
)
def test_whatever_was_changed_is_not_believed(body: bytes, given_: Mapping[str, str]) -> None:
    with pytest.raises(SignatureInvalid):
        verify(body, given_, SECRET, now=NOW)


@pytest.mark.parametrize("name", ["webhook_id", "webhook_timestamp", "webhook_signature"])
def test_each_header_is_needed(name: str) -> None:
    for missing in (None, ""):
        with pytest.raises(HeadersInvalid, match=name.replace("_", "-")):
            verify(BODY, changed(**{name: missing}), SECRET, now=NOW)


@pytest.mark.parametrize("timestamp", ["soon", " 1", "1 ", "+1", "-1", "1.5", "1_0", "01", "\u0661", "9" * 12])
def test_a_time_has_one_spelling(timestamp: str) -> None:
    with pytest.raises(HeadersInvalid):
        verify(BODY, changed(webhook_timestamp=timestamp), SECRET, now=NOW)


@pytest.mark.parametrize("signatures", ["v1a,AAAA", "AAAA", " ", " ".join(["v1,AAAA"] * 21)])
def test_there_is_a_signature_of_our_version_and_not_a_flood(signatures: str) -> None:
    with pytest.raises(HeadersInvalid):
        verify(BODY, changed(webhook_signature=signatures), SECRET, now=NOW)


@pytest.mark.parametrize("seconds", [-300, 300])
def test_five_minutes_either_way_are_near_enough(seconds: int) -> None:
    assert verify(BODY, headers(), SECRET, now=NOW + timedelta(seconds=seconds)).event_id == ID
    further = seconds + (1 if seconds > 0 else -1)
    with pytest.raises(TimestampInvalid):
        verify(BODY, headers(), SECRET, now=NOW + timedelta(seconds=further))


def test_the_tolerance_can_be_chosen() -> None:
    late = NOW + timedelta(minutes=30)
    assert verify(BODY, headers(), SECRET, now=late, tolerance=timedelta(hours=1)).event_id == ID
    with pytest.raises(TimestampInvalid, match="too long ago"):
        verify(BODY, headers(), SECRET, now=late, tolerance=timedelta(minutes=29))


def test_now_is_the_clock() -> None:
    with pytest.raises(TimestampInvalid):
        verify(BODY, headers(at=1), SECRET)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{}", b'{"type":"t"}', b"\xff", b"[" * 100_000),
        BODY.replace(b'"event_id"', b'"id"'),
        BODY.replace(b"2026-11-30T11", b"yesterday"),
        BODY.replace(b'{"order":"17"}', b'"order"'),
    ],
)
def test_what_is_signed_and_no_event_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        verify(body, headers(body=body), SECRET, now=NOW)


def test_facts_that_are_added_later_do_no_harm() -> None:
    body = json.dumps(json.loads(BODY) | {"new": 1, "data": DATA | {"new": [1]}}).encode()
    assert verify(body, headers(body=body), SECRET, now=NOW).status == "FAILED"


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", SECRET[6:], "whsk_" + SECRET[6:], SECRET[:-3], SECRET + "\n", "ä"],
    ids=["nothing", "a prefix", "no prefix", "another prefix", "cut short", "a line", "not ASCII"],
)
def test_what_is_no_secret_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(SecretInvalid) as raised:
        verify(BODY, headers(), secret, now=NOW)
    assert str(raised.value) == "a secret is whsec_ and the base64 of 24 to 64 bytes"
