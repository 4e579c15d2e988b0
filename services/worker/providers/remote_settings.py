"""Where a Provider service of somebody else's is. Durations are seconds."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from services.worker.providers.connection import is_near

# A port always, so that nothing is taken for another kind of target that grpc knows.
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}", re.ASCII)
TOKEN = re.compile(r"[!-~]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Raises ValueError where they cannot work; the message names the setting and no value."""

    address: str
    """address:port."""
    tls: bool = True
    ca_file: Path | None = None
    """Authorities to trust, in PEM, instead of the system's."""
    token: str = field(default="", repr=False)
    """Sent as a bearer token, where there is one."""
    timeout: float = 10.0
    """For the answer."""
    connect_timeout: float = 5.0

    def __post_init__(self) -> None:
        found = ADDRESS.fullmatch(self.address)
        if not found:
            raise ValueError("address: must be address:port")
        if not TOKEN.fullmatch(self.token):
            raise ValueError("token: must be one word")
        if self.token and not self.tls and not is_near(found["host"].strip("[]")):
            raise ValueError("tls: credentials do not leave this machine without it")
