"""Settings from the environment, prefix NOTIFYQUEUE_: all of them read and judged before anything starts.

Durations are seconds. A rule about two settings is a validator of the later one, so that every fault is found at once.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared import tls

PREFIX = "NOTIFYQUEUE_"

DAY = 86_400.0
YEAR = 366 * DAY

Seconds = Annotated[float, Field(ge=0, le=YEAR, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=YEAR, allow_inf_nan=False)]

# Four for group commits, or they would wait for one another where they should fly; one for reads; one to spare.
MIN_CONNECTIONS = 6


class SettingsInvalid(Exception):
    """The environment cannot be used; the message names every variable that is wrong, and no value."""


class ProcessSettings(BaseSettings):
    """What every service needs."""

    # Empty is not set: that is what a compose file makes of a variable that its own environment lacks.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    database_url: SecretStr
    """postgresql://… of this service's own login. May be a pooler in transaction mode if LISTEN_DATABASE_URL is set."""
    listen_database_url: SecretStr | None = None
    """A direct connection for LISTEN. Default: DATABASE_URL."""
    database_pool_max: Annotated[int, Field(ge=MIN_CONNECTIONS, le=1_000)] = 8
    """Connections of this process, besides the one that listens. At least 6: four write, and others read meanwhile."""
    auth: Literal["keys", "off"] = "keys"
    """keys: every call needs an API key. off: every caller is the tenant `default`, and may do everything."""
    listen_address: str = "127.0.0.1:50051"
    """address:port of the services; 0.0.0.0 or [::] is every address. Loopback only where AUTH is off."""
    tls_cert_file: Path | None = None
    """The server's certificate and chain, in PEM. Read again when it changes. Default: plain text."""
    tls_client_ca_file: Path | None = None
    """Authorities in PEM, of one of which clients must show a certificate. Default: they need none."""
    tls_key_file: Annotated[Path | None, Field(validate_default=True)] = None
    """The key of TLS_CERT_FILE, in PEM and without a password."""
    health_listen: str = "127.0.0.1:50061"
    """address:port of the health service: in plain text, without a key, and nothing else is there."""
    secret_key_file: Path | None = None
    """A file with the secret key, instead of SECRET_KEY."""
    secret_key: Annotated[SecretStr, Field(validate_default=True)] = SecretStr("")
    """At least 32 characters, equal on all processes, and for good: another ends the opt-outs of all who are erased."""
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
    """DEBUG, INFO, WARNING or ERROR; what was sent and each answered RPC are at DEBUG."""
    max_calls: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """RPCs under way at once; more are refused as SERVER_OVERLOADED."""
    call_timeout: PositiveSeconds = 30.0
    """No RPC takes longer, whatever its own deadline."""
    shutdown_delay: Seconds = 0.0
    """How long it is not ready, and still answers, before it stops: the time that load balancers need to notice."""
    shutdown_timeout: Seconds = 30.0
    """How long what runs may take to end."""

    @field_validator("database_url", "listen_database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must begin with postgresql://")
        return url

    @field_validator("listen_address", "health_listen")
    @classmethod
    def _can_be_listened_at(cls, address: str, info: ValidationInfo) -> str:
        host, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise ValueError("must be address:port")
        where = _ip("127.0.0.1" if host == "localhost" else host)
        if where is None:  # nor a name: grpc takes some for other kinds of sockets
            raise ValueError("must be an IP address, with a port")
        if not where.is_loopback and info.field_name == "listen_address" and info.data.get("auth") != "keys":
            raise ValueError(f"must be on a loopback address where {PREFIX}AUTH is off")
        return address

    @field_validator("tls_key_file")
    @classmethod
    def _is_the_key_of_its_certificate(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        certificate, client_ca = info.data.get("tls_cert_file"), info.data.get("tls_client_ca_file")
        if bool(certificate) != bool(key):
            raise ValueError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE: both or neither must be set")
        if client_ca and not certificate:
            raise ValueError(f"must be set where {PREFIX}TLS_CLIENT_CA_FILE is")
        if certificate and key:
            tls.read(tls.Files(certificate, key, client_ca))
        return key

    @field_validator("secret_key")
    @classmethod
    def _is_one_long_secret(cls, key: SecretStr, info: ValidationInfo) -> SecretStr:
        file: Path | None = info.data.get("secret_key_file")
        if bool(key.get_secret_value()) == bool(file):
            raise ValueError(f"exactly one of {PREFIX}SECRET_KEY and {PREFIX}SECRET_KEY_FILE must be set")
        if file:
            key = SecretStr(_read(file))
        if len(key.get_secret_value()) < 32:
            raise ValueError("must have at least 32 characters")
        return key

    def tls_files(self) -> tls.Files | None:
        """None: plain text."""
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        return tls.Files(self.tls_cert_file, self.tls_key_file, self.tls_client_ca_file)

    def secret(self) -> bytes:
        return self.secret_key.get_secret_value().encode()

    def listen_url(self) -> str:
        return (self.listen_database_url or self.database_url).get_secret_value()


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"{PREFIX}SECRET_KEY_FILE cannot be read") from None


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    return found if bracketed == (found.version == 6) else None


AnySettings = TypeVar("AnySettings", bound=BaseSettings)


def load(kind: type[AnySettings]) -> AnySettings:
    """The settings of a process. Raises SettingsInvalid, which names everything that is wrong at once."""
    try:
        return kind()
    except ValidationError as error:
        lines = [_line(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_input=False)]
        raise SettingsInvalid("\n".join(lines)) from None


def _line(name: str, problem: str) -> str:
    problem = problem.removeprefix("Value error, ")
    return f"{PREFIX}{name.upper()}: {problem}" if name else problem
