"""Standard Webhooks v1: what proves to an endpoint that a body is ours and new."""

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
NEW_KEY = 32
KEY_SIZES = range(24, 65)  # bytes, as the specification has it


class SecretInvalid(ValueError):
    """Not a secret of Standard Webhooks."""

    def __init__(self) -> None:
        super().__init__(f"must be {PREFIX} and the base64 of 24 to 64 bytes")


def new_secret() -> str:
    """What endpoint and dispatcher share."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY)).decode()


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: its decoded bytes, unlike Stripe's secrets of the same look."""
    if not secret.startswith(PREFIX):
        raise SecretInvalid
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise SecretInvalid from None
    if len(key) not in KEY_SIZES:
        raise SecretInvalid
    return key


def sign(key: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`. `timestamp` is this attempt's, in unix seconds; `body` exactly what is sent."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
