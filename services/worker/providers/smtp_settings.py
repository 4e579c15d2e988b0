"""Which mail server, and how long to wait for it. Durations are seconds."""

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from services.worker.providers.mail import Mailbox


class Tls(StrEnum):
    """How a connection is secured."""

    NONE = "none"
    STARTTLS = "starttls"
    """After the greeting (RFC 3207). A server that does not offer it gets no mail."""
    TLS = "tls"
    """From the first byte (RFC 8314)."""


PORTS = {Tls.NONE: 25, Tls.STARTTLS: 587, Tls.TLS: 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """Raises ValueError where they cannot work; the message names the setting and no value."""

    host: str
    sender: str
    """From whom a mail is that names no sender: an address, or `Name <address>`. Its domain is also our EHLO name."""
    port: int = 0
    """Default: 587 for starttls, 465 for tls, 25 for none."""
    tls: Tls = Tls.STARTTLS
    ca_file: Path | None = None
    """Authorities to trust, in PEM, besides the system's."""
    username: str = ""
    password: str = field(default="", repr=False)
    connect_timeout: float = 5.0
    """For the connection, and again for the greeting."""
    command_timeout: float = 10.0
    prepare_timeout: float = 15.0
    """From the start of an attempt to right before the final dot, the wait for a free connection included."""
    answer_timeout: float = 30.0
    """From the final dot to the answer. RFC 5321 asks for ten minutes, which would outlive any lease."""
    max_connections: int = 10
    idle_timeout: float = 30.0
    """An unused connection is closed after this; servers do so after five minutes, some much earlier."""
    max_messages: int = 100
    """So many mails on one connection, then a new one: servers count them, too."""

    def __post_init__(self) -> None:
        Mailbox.parse("sender", self.sender)
        if not self.host:
            raise ValueError("host: must be set")
        if bool(self.username) != bool(self.password):
            raise ValueError("username, password: both or neither")
        if self.username and self.tls is Tls.NONE and not self._is_near():
            raise ValueError("tls: credentials do not leave this machine without it")
        if min(self.connect_timeout, self.command_timeout, self.prepare_timeout, self.answer_timeout) <= 0:
            raise ValueError("timeouts: must be positive")
        if self.max_connections < 1 or self.max_messages < 1 or self.idle_timeout < 0:
            raise ValueError("max_connections, max_messages: at least 1; idle_timeout: not negative")

    def _is_near(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
