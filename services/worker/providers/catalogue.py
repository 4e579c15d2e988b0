"""Which provider serves which channel, as the settings say."""

from collections.abc import Callable, Mapping

from services.worker.providers import Provider
from services.worker.providers.fcm import Fcm
from services.worker.providers.mock import Mock, MockSettings
from services.worker.providers.remote import Remote
from services.worker.providers.resend import Resend
from services.worker.providers.smtp import Smtp
from services.worker.providers.twilio import Twilio
from services.worker.providers.unconfigured import Missing, Unconfigured
from services.worker.settings import CHANNELS, Settings


def choose_providers(settings: Settings) -> Mapping[str, Provider]:
    """A provider for each lane that is served, not yet entered."""
    served = [channel for channel in CHANNELS if settings.provider(channel) != "none"]
    return {channel: _provider(settings, channel) for channel in served}


def _provider(settings: Settings, channel: str) -> Provider:
    name = settings.provider(channel)
    try:
        return MAKERS[name](settings, channel)
    except Missing as missing:
        return Unconfigured(name, *missing.settings)


def _mock(settings: Settings, channel: str) -> Provider:
    return Mock(MockSettings(url=settings.mock_url, timeout=settings.provider_timeout(channel)), channel)


MAKERS: Mapping[str, Callable[[Settings, str], Provider]] = {
    "smtp": lambda settings, _: Smtp(settings.smtp()),
    "resend": lambda settings, _: Resend(settings.resend()),
    "twilio": lambda settings, _: Twilio(settings.twilio()),
    "fcm": lambda settings, _: Fcm(settings.fcm()),
    "remote": lambda settings, channel: Remote(settings.remote(channel), channel),
    "mock": _mock,
}
