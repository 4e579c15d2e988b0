"""The dispatcher's settings."""

from functools import partial
from typing import Annotated

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from services.dispatcher import signature
from services.dispatcher.claims import MARGIN
from services.dispatcher.egress import Egress, parse_networks
from services.dispatcher.endpoints import url_problem
from shared.settings import PREFIX, ProcessSettings

Positive = partial(Field, gt=0)


class Settings(ProcessSettings):
    listen_address: str = "127.0.0.1:50053"
    """address:port of the services; 0.0.0.0 or [::] is every address. Loopback only where AUTH is off."""
    health_listen: str = "127.0.0.1:50063"
    """address:port of the health service: in plain text, without a key, and nothing else is there."""
    poll_interval: Annotated[float, Positive(le=3600)] = 5.0
    """How often it looks by itself, where no wake-up came."""
    webhook_timeout: Annotated[float, Positive(le=300)] = 15.0
    """How long a post may take in all."""
    lease: Annotated[float, Positive(le=3600, validate_default=True)] = 60.0
    """How long a claim holds: after a crash, a delivery is tried again then. More than WEBHOOK_TIMEOUT and 5 s."""
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
    webhook_secret: Annotated[SecretStr | None, Field(validate_default=True)] = None
    """The secret of WEBHOOK_URL: `whsec_` and the base64 of 24 to 64 random bytes."""

    @field_validator("webhook_allow_addresses")
    @classmethod
    def _is_a_list_of_networks(cls, text: str) -> str:
        try:
            parse_networks(text)
        except ValueError:
            raise ValueError("must be CIDRs such as 127.0.0.1/32, with commas in between") from None
        return text

    @field_validator("lease")
    @classmethod
    def _outlasts_a_post(cls, lease: float, info: ValidationInfo) -> float:
        if lease <= info.data.get("webhook_timeout", 0) + MARGIN:
            raise ValueError(f"must be more than {PREFIX}WEBHOOK_TIMEOUT + {MARGIN:g} seconds")
        return lease

    @field_validator("webhook_url")
    @classmethod
    def _can_be_posted_to(cls, url: str | None, info: ValidationInfo) -> str | None:
        allowed = parse_networks(info.data.get("webhook_allow_addresses", ""))
        if url is not None and (problem := url_problem(url, Egress(allowed))):
            raise ValueError(problem)
        return url

    @field_validator("webhook_secret")
    @classmethod
    def _is_the_secret_of_its_url(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if "webhook_url" in info.data and (info.data["webhook_url"] is None) != (secret is None):
            raise ValueError(f"{PREFIX}WEBHOOK_URL and {PREFIX}WEBHOOK_SECRET: both or neither must be set")
        if secret:
            signature.key_of(secret.get_secret_value())
        return secret

    def egress(self) -> Egress:
        return Egress(parse_networks(self.webhook_allow_addresses))

    def configured_endpoint(self) -> tuple[str, bytes] | None:
        """Its URL and key."""
        if self.webhook_url is None or self.webhook_secret is None:
            return None
        return self.webhook_url, signature.key_of(self.webhook_secret.get_secret_value())
