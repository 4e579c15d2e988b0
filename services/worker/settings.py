"""The worker's settings. Durations are seconds."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from services.worker.providers.smtp_settings import SmtpSettings, Tls
from shared.settings import PREFIX, ProcessSettings, Seconds

ATTEMPT_FACTOR = 1.5  # an attempt does more than wait for the provider's last answer


class Settings(ProcessSettings):
    listen_address: str = "127.0.0.1:50052"
    """host:port of the services. Loopback only."""
    health_listen: str = "127.0.0.1:50062"
    """host:port of the health service in plain text. Loopback only."""
    worker_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Notifications of a lane that may be under way at once."""
    poll_interval: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """How often a lane looks for work that nothing announced."""
    retry_cap: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """The longest delay between attempts."""
    retry_base: Annotated[float, Field(gt=0, le=86_400, validate_default=True)] = 2.0
    """The first delay between attempts; doubled with each. At most RETRY_CAP."""
    priority_aging: Seconds = 300.0
    """What has been due for longer is served by one claim in eight, the lowest priority first. 0: never."""
    email_provider: Literal["smtp", "mock"] = "smtp"
    """What delivers mail."""
    email_provider_timeout: Annotated[float, Field(gt=0, le=600)] = 30.0
    """How long the provider may take for its last answer."""
    lease: Annotated[float, Field(gt=0, le=3600, validate_default=True)] = 60.0
    """How long a claim lasts without being renewed; what a dead worker held is recovered after it."""
    smtp_host: Annotated[str, Field(validate_default=True)] = ""
    """The mail server."""
    smtp_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Default: 587 for starttls, 465 for tls, 25 for none."""
    smtp_tls: Tls = Tls.STARTTLS
    """starttls, tls (from the first byte), or none."""
    smtp_ca_file: Path | None = None
    """Authorities to trust, in PEM, besides the system's."""
    smtp_username: str = ""
    """To log in with, if the server wants that."""
    smtp_password: Annotated[SecretStr, Field(validate_default=True)] = SecretStr("")
    """The username's."""
    smtp_sender: Annotated[str, Field(validate_default=True)] = ""
    """From whom a mail is that names no sender: an address, or `Name <address>`."""
    mock_url: Annotated[str, Field(pattern=r"^https?://[^/]+")] = "http://127.0.0.1:58080"
    """Where the sandbox is, for the mock provider."""

    @property
    def attempt_deadline(self) -> float:
        """How long one attempt may take in all."""
        return self.email_provider_timeout * ATTEMPT_FACTOR

    @field_validator("smtp_host", "smtp_sender")
    @classmethod
    def _is_set_for_smtp(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("email_provider") == "smtp" and not value:
            raise ValueError(f"must be set where {PREFIX}EMAIL_PROVIDER is smtp")
        return value

    @field_validator("smtp_password")
    @classmethod
    def _is_the_password_of_its_user(cls, password: SecretStr, info: ValidationInfo) -> SecretStr:
        if bool(info.data.get("smtp_username")) != bool(password.get_secret_value()):
            raise ValueError(f"{PREFIX}SMTP_USERNAME and {PREFIX}SMTP_PASSWORD: both or neither must be set")
        return password

    @field_validator("retry_base")
    @classmethod
    def _is_below_its_cap(cls, base: float, info: ValidationInfo) -> float:
        if base > info.data.get("retry_cap", base):
            raise ValueError(f"must be at most {PREFIX}RETRY_CAP")
        return base

    @field_validator("lease")
    @classmethod
    def _outlives_an_attempt(cls, lease: float, info: ValidationInfo) -> float:
        if lease <= info.data.get("email_provider_timeout", 0) * ATTEMPT_FACTOR:
            bound = f"{ATTEMPT_FACTOR} times {PREFIX}EMAIL_PROVIDER_TIMEOUT"
            raise ValueError(f"must be more than {bound}, or a call could outlive its claim")
        return lease

    @model_validator(mode="after")
    def _smtp_can_work(self) -> Self:
        if self.email_provider == "smtp":
            try:
                self.smtp()
            except ValueError as error:
                name, _, problem = str(error).partition(": ")
                raise ValueError(f"{PREFIX}SMTP_{name.upper()}: {problem}") from None
        return self

    def smtp(self) -> SmtpSettings:
        """Raises ValueError."""
        return SmtpSettings(
            host=self.smtp_host,
            port=self.smtp_port,
            tls=self.smtp_tls,
            ca_file=self.smtp_ca_file,
            username=self.smtp_username,
            password=self.smtp_password.get_secret_value(),
            sender=self.smtp_sender,
            prepare_timeout=self.attempt_deadline - self.email_provider_timeout,
            answer_timeout=self.email_provider_timeout,
            max_connections=self.worker_concurrency,  # a claim is a start: it must not wait for a connection
        )
