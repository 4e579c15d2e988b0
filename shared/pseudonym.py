"""What stands for an address that must not be kept, or told: the same for every spelling of it, and nobody can undo it.

A hash without a key would be undone by trying all telephone numbers. The key is derived from SECRET_KEY, so all
processes of an installation find the same; with another SECRET_KEY nothing that was written down is found again.
"""

import hmac
import string
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LENGTH = 32  # hexadecimal digits: 128 bits, so that no two addresses are taken for one another

# As the function suppressed_form of the database: letters of ASCII only.
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def pseudonym(secret: bytes, tenant: str, channel: str, address: str) -> str:
    """32 hexadecimal digits for a canonical address. `secret` is the installation's SECRET_KEY."""
    form = address.translate(LOWER) if channel == "EMAIL" else address
    # No tenant and no channel has this character.
    return hmac.digest(_key(secret), f"{tenant}|{channel}|{form}".encode(), "sha256").hex()[:LENGTH]


@lru_cache(maxsize=8)
def _key(secret: bytes) -> bytes:
    return HKDF(SHA256(), length=32, salt=None, info=b"notifyqueue address pseudonym").derive(secret)
