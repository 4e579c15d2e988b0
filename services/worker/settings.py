"""The worker's settings. Durations are seconds."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from services.worker.providers import fcm_settings, resend_settings, twilio_settings
from services.worker.providers.connection import CONNECT_TIMEOUT
from services.worker.providers.fcm_settings import FcmSettings, ServiceAccount
from services.worker.providers.remote_settings import RemoteSettings
from services.worker.providers.resend_settings import ResendSettings
from services.worker.providers.smtp_settings import SmtpSettings, Tls
from services.worker.providers.twilio_settings import TwilioSettings
from services.worker.providers.unconfigured import Missing
from shared.settings import DAY, PREFIX, YEAR, ProcessSettings, Seconds

CHANNELS = ("EMAIL", "SMS", "PUSH")
ATTEMPT_FACTOR = 1.5  # an attempt does more than wait for the provider's last answer


# The providers that have a method here, and what may be in a file.
BUILT = ("smtp", "resend", "twilio", "fcm")
SECRETS = ("resend_api_key", "twilio_auth_token", "fcm_credentials", "remote_token")

Concurrency = Annotated[int, Field(ge=1, le=10_000)]
ProviderTimeout = Annotated[float, Field(gt=0, le=600)]
Url = Annotated[str, Field(pattern=r"^https?://[^/@?#]+[^@?#]*$")]
Retained = Annotated[float, Field(ge=0, le=10 * YEAR, allow_inf_nan=False)]


class Settings(ProcessSettings):
    listen_address: str = "127.0.0.1:50052"
    """address:port of the services; 0.0.0.0 or [::] is every address. Loopback only where AUTH is off."""
    health_listen: str = "127.0.0.1:50062"
    """address:port of the health service: in plain text, without a key, and nothing else is there."""
    worker_concurrency: Concurrency = 64
    """Notifications of a lane that may be under way at once."""
    email_concurrency: Concurrency | None = None
    """Likewise, of the email lane. Default: WORKER_CONCURRENCY."""
    sms_concurrency: Concurrency | None = None
    """Likewise, of the SMS lane."""
    push_concurrency: Concurrency | None = None
    """Likewise, of the push lane."""
    poll_interval: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """How often a lane looks for work that nothing announced."""
    retry_cap: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """The longest delay between attempts."""
    retry_base: Annotated[float, Field(gt=0, le=86_400, validate_default=True)] = 2.0
    """The first delay between attempts; doubled with each. At most RETRY_CAP."""
    priority_aging: Seconds = 300.0
    """What has been due for longer is served by one claim in eight, the lowest priority first. 0: never."""
    retention: Retained = 30 * DAY
    """How long what was sent, cancelled, expired or suppressed is kept, and until its webhooks are delivered or given
    up: without a dispatcher nothing goes. 0: for ever, as is what failed."""
    content_retention: Retained = 7 * DAY
    """How long its content is kept, unless it has a time to expire: then it goes with its end. 0: as long as itself."""
    probe_base: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """While a lane's breaker is open: how long until one notification is sent as a probe; doubled while it fails."""
    probe_cap: Annotated[float, Field(gt=0, le=3600, validate_default=True)] = 60.0
    """The longest delay between probes."""
    email_provider: Literal["none", "smtp", "resend", "remote", "mock"] = "smtp"
    """What delivers mail. none: this worker does not."""
    email_provider_timeout: ProviderTimeout = 30.0
    """How long the provider may take for its last answer."""
    sms_provider: Literal["none", "twilio", "remote", "mock"] = "none"
    """What delivers text messages. none: this worker does not."""
    sms_provider_timeout: ProviderTimeout = 10.0
    """How long the provider may take for its last answer."""
    push_provider: Literal["none", "fcm", "remote", "mock"] = "none"
    """What delivers push messages. none: this worker does not."""
    push_provider_timeout: ProviderTimeout = 10.0
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
    resend_api_key: SecretStr = SecretStr("")
    """Of the account that sends."""
    resend_api_key_file: Path | None = None
    """A file with it, instead of RESEND_API_KEY."""
    resend_sender: str = ""
    """From whom a mail is that names no sender: an address, or `Name <address>`, of a domain that is verified."""
    resend_url: Url = resend_settings.URL
    """Where Resend's API is."""
    twilio_account_sid: str = ""
    """Of the account that sends: AC and 32 hexadecimal digits."""
    twilio_api_key_sid: str = ""
    """An API key to log in with, SK and 32 hexadecimal digits. Default: the account itself."""
    twilio_auth_token: SecretStr = SecretStr("")
    """The account's auth token, or the secret of TWILIO_API_KEY_SID."""
    twilio_auth_token_file: Path | None = None
    """A file with it, instead of TWILIO_AUTH_TOKEN."""
    twilio_sender: str = ""
    """From whom: a number in E.164, a short code, an alphanumeric sender, or a messaging service: MG and 32 digits."""
    twilio_url: Url = twilio_settings.URL
    """Where Twilio's API is."""
    fcm_credentials: SecretStr = SecretStr("")
    """The key of a service account that may send, in JSON, as Google gives it."""
    fcm_credentials_file: Path | None = None
    """A file with it, instead of FCM_CREDENTIALS."""
    fcm_project: str = ""
    """The id of the Firebase project. Default: the service account's."""
    fcm_url: Url = fcm_settings.URL
    """Where FCM's API is."""
    email_remote_address: str = ""
    """address:port of the Provider service that delivers mail."""
    sms_remote_address: str = ""
    """Likewise, text messages."""
    push_remote_address: str = ""
    """Likewise, push messages."""
    remote_tls: Literal["none", "tls"] = "tls"
    """How these are spoken to."""
    remote_ca_file: Path | None = None
    """Authorities to trust there, in PEM, instead of the system's."""
    remote_token: SecretStr = SecretStr("")
    """Sent to them as a bearer token. Default: none is."""
    remote_token_file: Path | None = None
    """A file with it, instead of REMOTE_TOKEN."""
    mock_url: Annotated[str, Field(pattern=r"^https?://[^/]+")] = "http://127.0.0.1:58080"
    """Where the sandbox is, for the mock provider."""

    def provider(self, channel: str) -> str:
        """What delivers on this channel, or none."""
        return str(getattr(self, f"{channel.lower()}_provider"))

    def provider_timeout(self, channel: str) -> float:
        return float(getattr(self, f"{channel.lower()}_provider_timeout"))

    def attempt_deadline(self, channel: str) -> float:
        """How long one attempt may take in all."""
        return self.provider_timeout(channel) * ATTEMPT_FACTOR

    def concurrency(self, channel: str) -> int:
        chosen: int | None = getattr(self, f"{channel.lower()}_concurrency")
        return chosen or self.worker_concurrency

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

    @field_validator("probe_cap")
    @classmethod
    def _is_above_its_base(cls, cap: float, info: ValidationInfo) -> float:
        if cap < info.data.get("probe_base", 0):
            raise ValueError(f"must be at least {PREFIX}PROBE_BASE")
        return cap

    @field_validator("retry_base")
    @classmethod
    def _is_below_its_cap(cls, base: float, info: ValidationInfo) -> float:
        if base > info.data.get("retry_cap", base):
            raise ValueError(f"must be at most {PREFIX}RETRY_CAP")
        return base

    @field_validator("lease")
    @classmethod
    def _outlives_an_attempt(cls, lease: float, info: ValidationInfo) -> float:
        served = [channel.lower() for channel in CHANNELS if info.data.get(f"{channel.lower()}_provider") != "none"]
        for name in (f"{channel}_provider_timeout" for channel in served):
            if lease <= info.data.get(name, 0) * ATTEMPT_FACTOR:
                bound = f"{ATTEMPT_FACTOR} times {PREFIX}{name.upper()}"
                raise ValueError(f"must be more than {bound}, or a call could outlive its claim")
        return lease

    @model_validator(mode="after")
    def _serves_a_lane(self) -> Self:
        if all(self.provider(channel) == "none" for channel in CHANNELS):
            names = ", ".join(f"{PREFIX}{channel}_PROVIDER" for channel in CHANNELS)
            raise ValueError(f"{names}: at least one must not be none")
        return self

    @model_validator(mode="after")
    def _secrets_have_one_place(self) -> Self:
        for name in SECRETS:
            if getattr(self, name).get_secret_value() and getattr(self, f"{name}_file"):
                raise ValueError(f"{PREFIX}{name.upper()} and {PREFIX}{name.upper()}_FILE: at most one must be set")
        return self

    @model_validator(mode="after")
    def _providers_can_work(self) -> Self:
        """What is wrong stops the start. What is missing does not: the catalogue sees to that lane."""
        for channel in CHANNELS:
            name = self.provider(channel)
            try:
                if name == "remote":
                    self.remote(channel)
                elif name in BUILT:
                    getattr(self, name)()
            except Missing:
                pass
            except ValueError as error:
                field, _, problem = str(error).partition(": ")
                of = f"{channel}_{name}" if field == "address" else name
                raise ValueError(f"{PREFIX}{of.upper()}_{field.upper()}: {problem}") from None
        return self

    def smtp(self) -> SmtpSettings:
        """Raises ValueError."""
        return SmtpSettings(
            host=self.smtp_host,
            port=self.smtp_port,
            tls=self.smtp_tls,
            ca_file=_authorities(self.smtp_ca_file),
            username=self.smtp_username,
            password=self.smtp_password.get_secret_value(),
            sender=self.smtp_sender,
            prepare_timeout=self.attempt_deadline("EMAIL") - self.email_provider_timeout,
            answer_timeout=self.email_provider_timeout,
            max_connections=self.concurrency("EMAIL"),  # a claim is a start: it must not wait for a connection
        )

    def resend(self) -> ResendSettings:
        """Raises Missing, ValueError."""
        api_key, sender = self._needed("resend_api_key", "resend_sender")
        return ResendSettings(api_key=api_key, sender=sender, url=self.resend_url, timeout=self.email_provider_timeout)

    def twilio(self) -> TwilioSettings:
        """Raises Missing, ValueError."""
        account_sid, secret, sender = self._needed("twilio_account_sid", "twilio_auth_token", "twilio_sender")
        return TwilioSettings(
            account_sid=account_sid,
            secret=secret,
            sender=sender,
            api_key_sid=self.twilio_api_key_sid,
            url=self.twilio_url,
            timeout=self.sms_provider_timeout,
        )

    def fcm(self) -> FcmSettings:
        """Raises Missing, ValueError."""
        (credentials,) = self._needed("fcm_credentials")
        return FcmSettings(
            account=ServiceAccount.parse(credentials),
            project=self.fcm_project,
            url=self.fcm_url,
            timeout=self.push_provider_timeout,
            token_timeout=self.attempt_deadline("PUSH") - self.push_provider_timeout,
        )

    def remote(self, channel: str) -> RemoteSettings:
        """Raises Missing, ValueError."""
        has_token = self.remote_token_file or self.remote_token.get_secret_value()
        address, *token = self._needed(f"{channel.lower()}_remote_address", *(["remote_token"] if has_token else []))
        timeout = self.provider_timeout(channel)
        return RemoteSettings(
            address=address,
            tls=self.remote_tls == "tls",
            ca_file=_authorities(self.remote_ca_file),
            token="".join(token),
            timeout=timeout,
            connect_timeout=min(CONNECT_TIMEOUT, self.attempt_deadline(channel) - timeout),
        )

    def _needed(self, *names: str) -> Sequence[str]:
        """Their values. Raises Missing, which names each that has none."""
        values = [self._secret(name) if name in SECRETS else str(getattr(self, name)) for name in names]
        if missing := [name for name, value in zip(names, values, strict=True) if not value]:
            raise Missing(*(self._place(name).upper() for name in missing))
        return values

    def _place(self, name: str) -> str:
        """The setting that has it: itself, or its file's."""
        return f"{name}_file" if getattr(self, f"{name}_file", None) else name

    def _secret(self, name: str) -> str:
        """From its variable or its file, which may also come later than this process: then it is empty."""
        file: Path | None = getattr(self, f"{name}_file")
        if file is None:
            secret: SecretStr = getattr(self, name)
            return secret.get_secret_value().strip()
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""


def _authorities(ca_file: Path | None) -> Path | None:
    """Raises ValueError: it is read when its provider starts, and then nobody could say whose it is."""
    if ca_file:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
        except OSError:  # of TLS, too
            raise ValueError("ca_file: is no readable PEM certificate") from None
    return ca_file
