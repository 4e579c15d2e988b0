"""A service account such as Google gives as a file, of nobody's project: to ask the sandbox for tokens with."""

import json
from dataclasses import dataclass
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PROJECT = "sandbox"
EMAIL = "notifyqueue@sandbox.iam.gserviceaccount.com"


def make(token_url: str) -> str:
    """A new key, as JSON."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "sandbox",
        "private_key": pem,
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": token_url,
    }
    return json.dumps(account)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Knows the account by its public key."""

    key: rsa.RSAPublicKey
    email: str
    project: str

    @classmethod
    def of(cls, account: str) -> Self:
        """Raises ValueError."""
        try:
            found = json.loads(account)
            key = serialization.load_pem_private_key(found["private_key"].encode(), None)
            email, project = str(found["client_email"]), str(found["project_id"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError("not the key of a service account") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError("not the key of a service account")  # noqa: TRY004 - of the text, as the others
        return cls(key.public_key(), email, project)
