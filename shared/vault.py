"""What leaves the process sealed: page tokens, webhook secrets at rest. AES-256-GCM under keys derived per purpose."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE = 12
VERSION = b"\x01"
MIN_KEY = 32


class SealBroken(Exception):
    """It was not sealed by this key for this purpose and binding, or has been changed since."""


class Vault:
    """Seals and opens under one secret key, which must be equal on every process of an installation."""

    def __init__(self, secret_key: bytes, purpose: str) -> None:
        """`secret_key` is at least 32 bytes; what is sealed for one `purpose` cannot be opened for another."""
        if len(secret_key) < MIN_KEY:
            raise ValueError(f"the secret key must have at least {MIN_KEY} bytes")
        key = HKDF(SHA256(), length=32, salt=None, info=b"notifyqueue " + purpose.encode()).derive(secret_key)
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, *, bound_to: bytes = b"") -> bytes:
        """`bound_to` is not in the seal, and must be presented again to open it."""
        nonce = os.urandom(NONCE)
        return VERSION + nonce + self._cipher.encrypt(nonce, plain, VERSION + bound_to)

    def open(self, sealed: bytes, *, bound_to: bytes = b"") -> bytes:
        """Raises SealBroken."""
        if len(sealed) <= len(VERSION) + NONCE or not sealed.startswith(VERSION):
            raise SealBroken
        nonce, text = sealed[1 : 1 + NONCE], sealed[1 + NONCE :]
        try:
            return self._cipher.decrypt(nonce, text, VERSION + bound_to)
        except InvalidTag:
            raise SealBroken from None
