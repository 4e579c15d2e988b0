"""The sandbox's settings, from variables with the prefix SANDBOX_."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "SANDBOX_"

Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """Port 0 takes a free one, which the log of the start names."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr
    """postgresql://…, of a login that may create the schema `sandbox`."""
    listen_host: IPv4Address = IPv4Address("127.0.0.1")
    """Where the servers listen: nobody is asked who he is, so anything but loopback is for a container."""
    smtp_port: Port = 52525
    http_port: Port = 58080
    mock_transient_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of requests to the mock provider that fail by chance, and may be sent again."""
    webhook_secret: SecretStr | None = None
    """The secret of the endpoint `up`, for where nobody puts one."""
    fcm_credentials_file: Path | None = None
    """The service account that may ask for tokens to push with, in JSON. Without it nobody may."""
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
