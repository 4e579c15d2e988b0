"""The dispatcher's settings."""

from functools import partial
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from services.dispatcher import signature
from services.dispatcher.claims import MARGIN
from services.dispatcher.egress import Egress, parse_networks
from services.dispatcher.endpoints import url_problem
from shared.settings import PREFIX, ProcessSettings

Positive = partial(Field, gt=0)


class Settings(ProcessSettings):
    listen_address: str = "127.0.0.1:50053"
    """host:port of the services. Loopback only."""
    health_listen: str = "127.0.0.1:50063"
    """host:port of the health service in plain text. Loopback only."""
    poll_interval: Annotated[float, Positive(le=3600)] = 5.0
    """How often it looks by itself, where no wake-up came."""
    lease: Annotated[float, Positive(le=3600)] = 60.0
    """How long a claim holds: after a crash, a delivery is tried again then. More than WEBHOOK_TIMEOUT and 5 s."""
    webhook_timeout: Annotated[float, Positive(le=300)] = 15.0
    """How long a post may take in all."""
    webhook_max_attempts: Annotated[int, Field(ge=1, le=100)] = 10
    """Attempts that a delivery may have."""
    webhook_concurrency: Annotated[int, Field(ge=1, le=1000)] = 100
    """Posts under way at once in this process."""
    webhook_endpoint_concurrency: Annotated[int, Field(ge=1, le=1000)] = 10
    """Posts under way at once to one endpoint, over all dispatchers. Equal on all of them."""
    webhook_max_endpoints: Annotated[int, Field(ge=1, le=100)] = 20
    """Endpoints that a tenant may have."""
    webhook_allow_addresses: str = ""
    """CIDRs with commas in between: what webhooks may go to although it is private, such as 127.0.0.1/32."""
    webhook_url: str | None = None
    """An endpoint of the tenant `default`, made at start. Taken away here, it stays until it is deleted."""
    webhook_secret: SecretStr | None = None
    """The secret of WEBHOOK_URL: `whsec_` and the base64 of 24 to 64 random bytes."""

    @field_validator("webhook_allow_addresses")
    @classmethod
    def _is_a_list_of_networks(cls, text: str) -> str:
        try:
            parse_networks(text)
        except ValueError:
            raise ValueError("must be CIDRs such as 127.0.0.1/32, with commas in between") from None
        return text

    @field_validator("webhook_secret")
    @classmethod
    def _is_a_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret:
            signature.key_of(secret.get_secret_value())
        return secret

    @model_validator(mode="after")
    def _lease_outlasts_a_post(self) -> Self:
        if self.lease <= self.webhook_timeout + MARGIN:
            raise ValueError(f"{PREFIX}LEASE: must be more than {PREFIX}WEBHOOK_TIMEOUT + {MARGIN:g} seconds")
        return self

    @model_validator(mode="after")
    def _endpoint_can_be_made(self) -> Self:
        if (self.webhook_url is None) != (self.webhook_secret is None):
            raise ValueError(f"{PREFIX}WEBHOOK_URL and {PREFIX}WEBHOOK_SECRET: both or neither must be set")
        if self.webhook_url is not None and (problem := url_problem(self.webhook_url, self.egress())):
            raise ValueError(f"{PREFIX}WEBHOOK_URL: {problem}")
        return self

    def egress(self) -> Egress:
        return Egress(parse_networks(self.webhook_allow_addresses))

    def configured_endpoint(self) -> tuple[str, bytes] | None:
        """Its URL and key."""
        if self.webhook_url is None or self.webhook_secret is None:
            return None
        return self.webhook_url, signature.key_of(self.webhook_secret.get_secret_value())
