"""Signatures: the published vectors, and an independent implementation as oracle."""

import base64
import os
import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from services.dispatcher.delivery import Delivery, signed_post
from services.dispatcher.keys import Keys
from services.dispatcher.signature import SecretInvalid, key_of, new_secret, sign

BODY = (
    b'{"type":"notification.delivered","timestamp":"2025-11-30T10:53:20.000000Z",'
    b'"data":{"notification_id":"ntf_01JDZ","status":"delivered","channel":"sms"}}'
)
VECTORS = [
    (
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
        1764500000,
        BODY,
        "v1,ZJT5/Y+O2CVE1o2g90xHgRoALzSqBXArhWATTSlWWz8=",
    ),
    (
        "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=",
        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
        1764500000,
        BODY,
        "v1,6+D2HtP6G50h/bOECHUwl7SlL648NXVxXhQhptSffmM=",
    ),
    (  # the specification's own
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]


@pytest.mark.parametrize(("secret", "webhook_id", "timestamp", "body", "signature"), VECTORS)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Bangkok"])
def test_the_vectors_hold_in_every_time_zone(
    secret: str,
    webhook_id: str,
    timestamp: int,
    body: bytes,
    signature: str,
    zone: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "TZ", zone)
    time.tzset()
    try:
        assert sign(key_of(secret), webhook_id, timestamp, body) == signature
    finally:
        monkeypatch.undo()
        time.tzset()


@given(
    key=st.binary(min_size=24, max_size=64),
    body=st.text(),
    webhook_id=st.uuids(),
    timestamp=st.integers(0, 4_000_000_000),
)
def test_the_reference_implementation_makes_the_same_signature(
    key: bytes, body: str, webhook_id: object, timestamp: int
) -> None:
    oracle = Webhook("whsec_" + base64.b64encode(key).decode())
    expected = oracle.sign(str(webhook_id), datetime.fromtimestamp(timestamp, UTC), body)
    assert sign(key, str(webhook_id), timestamp, body.encode()) == expected


def test_the_reference_implementation_accepts_what_is_signed_now() -> None:
    secret = new_secret()
    now = int(time.time())
    headers = {
        "webhook-id": "id",
        "webhook-timestamp": str(now),
        "webhook-signature": sign(key_of(secret), "id", now, BODY),
    }
    assert Webhook(secret).verify(BODY, headers)["type"] == "notification.delivered"


def test_a_new_secret_has_32_bytes_and_is_never_the_same() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(key_of(secret)) for secret in secrets} == {32}


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= ",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh-=",
        "whsec_äöü",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
    ],
)
def test_what_is_no_secret_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(SecretInvalid) as refused:
        key_of(secret)
    assert str(refused.value) == "must be whsec_ and the base64 of 24 to 64 bytes"


def test_what_is_posted_carries_its_span_and_its_signature() -> None:
    keys, endpoint, sent_at = Keys(bytes(32)), uuid4(), datetime.now(UTC)
    delivery = Delivery(
        *(uuid4(), uuid4(), endpoint, "default", 1, "https://example.com/hook"),
        *(keys.seal("default", endpoint, key_of(VECTORS[0][0])), BODY, uuid4(), sent_at, 0.0),
    )
    post = signed_post(delivery, keys, sent_at, {"traceparent": "00-1-2-01", "tracestate": "shop=theirs"})
    assert post.headers.items() >= {"traceparent": "00-1-2-01", "tracestate": "shop=theirs"}.items()
    Webhook(VECTORS[0][0]).verify(post.body, dict(post.headers))
