"""The providers that speak HTTP, as the tests need them that hold for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from sandbox import service_account
from services.worker.providers import Answer, Provider
from services.worker.providers.fcm import Fcm
from services.worker.providers.fcm_codes import QUOTA_REST
from services.worker.providers.fcm_settings import FcmSettings, ServiceAccount
from services.worker.providers.mock import THROTTLED_REST, Mock, MockSettings
from services.worker.providers.resend import Resend
from services.worker.providers.resend_settings import ResendSettings
from services.worker.providers.twilio import Twilio
from services.worker.providers.twilio_settings import TwilioSettings

SECRET = "mk-secret"


@dataclass(frozen=True, slots=True)
class Kind:
    """`make` takes the server's address and the timeout in seconds."""

    name: str
    channel: str
    make: Callable[[str, float], Provider]
    address: str
    content: Mapping[str, object]
    away: Answer = Answer.UNKNOWN
    """What 503 means."""
    throttled_rest: timedelta = timedelta(seconds=2)
    """What 429 means, where it names no time."""
    malformed: Answer = Answer.UNKNOWN
    """What 200 means, with a body that is no answer."""


def _twilio(url: str, timeout: float) -> Provider:
    return Twilio(
        TwilioSettings(account_sid="AC" + "0" * 32, secret=SECRET, sender="+15005550006", url=url, timeout=timeout)
    )


def _mock(url: str, timeout: float) -> Provider:
    return Mock(MockSettings(url=url, timeout=timeout), "SMS")


def _resend(url: str, timeout: float) -> Provider:
    return Resend(ResendSettings(api_key=SECRET, sender="us@example.com", url=url, timeout=timeout))


ACCOUNT = service_account.make("https://127.0.0.1/token")


def _fcm(url: str, timeout: float) -> Provider:
    account = replace(ServiceAccount.parse(ACCOUNT), token_url=f"{url}/token")
    return Fcm(FcmSettings(account=account, url=url, timeout=timeout, token_timeout=30.0))


PUSH = {"title": "mk-title", "body": "mk-body", "data": {"mk-key": "mk-value"}}
MAIL = {"subject": "mk-subject", "text": "mk-body"}
TEXT = {"text": "mk-body"}

KINDS = (
    Kind("mock", "SMS", _mock, "+447700900123", TEXT, throttled_rest=THROTTLED_REST, malformed=Answer.ACCEPTED),
    Kind("resend", "EMAIL", _resend, "mk-local@example.com", MAIL),
    Kind("twilio", "SMS", _twilio, "+447700900123", TEXT),
    Kind("fcm", "PUSH", _fcm, "mk-token", PUSH, away=Answer.TRANSIENT, throttled_rest=QUOTA_REST),
)
BY_NAME = {kind.name: kind for kind in KINDS}
