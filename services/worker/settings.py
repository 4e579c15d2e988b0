"""The worker's settings. Durations are seconds."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, ValidationInfo, field_validator

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
    retry_base: PositiveFloat = 2.0
    """The first delay between attempts; doubled with each."""
    retry_cap: PositiveFloat = 900.0
    """The longest delay between attempts."""
    priority_aging: Seconds = 300.0
    """What has been due for longer is served by one claim in eight, the lowest priority first. 0: never."""
    email_provider: Literal["smtp", "mock"] = "smtp"
    """What delivers mail."""
    email_provider_timeout: PositiveFloat = 30.0
    """How long the provider may take for its last answer."""
    lease: Annotated[PositiveFloat, Field(validate_default=True)] = 60.0
    """How long a claim lasts without being renewed; what a dead worker held is recovered after it."""

    @property
    def attempt_deadline(self) -> float:
        """How long one attempt may take in all."""
        return self.email_provider_timeout * ATTEMPT_FACTOR

    @field_validator("lease")
    @classmethod
    def _outlives_an_attempt(cls, lease: float, info: ValidationInfo) -> float:
        if lease <= info.data.get("email_provider_timeout", 0) * ATTEMPT_FACTOR:
            bound = f"{ATTEMPT_FACTOR} times {PREFIX}EMAIL_PROVIDER_TIMEOUT"
            raise ValueError(f"must be more than {bound}, or a call could outlive its claim")
        return lease
