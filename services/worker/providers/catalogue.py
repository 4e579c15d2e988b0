"""Which provider serves which channel, as the settings say.

A provider is imported where it is made: its client's library is a third of what a worker loads, and one that sends
mail has no use for that of HTTP.
"""

from collections.abc import Callable, Mapping

from services.worker.providers import Provider
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


def _smtp(settings: Settings, _: str) -> Provider:
    from services.worker.providers.smtp import Smtp

    return Smtp(settings.smtp())


def _resend(settings: Settings, _: str) -> Provider:
    from services.worker.providers.resend import Resend

    return Resend(settings.resend())


def _twilio(settings: Settings, _: str) -> Provider:
    from services.worker.providers.twilio import Twilio

    return Twilio(settings.twilio())


def _fcm(settings: Settings, _: str) -> Provider:
    from services.worker.providers.fcm import Fcm

    return Fcm(settings.fcm())


def _remote(settings: Settings, channel: str) -> Provider:
    from services.worker.providers.remote import Remote

    return Remote(settings.remote(channel), channel)


def _mock(settings: Settings, channel: str) -> Provider:
    from services.worker.providers.mock import Mock, MockSettings

    return Mock(MockSettings(url=settings.mock_url, timeout=settings.provider_timeout(channel)), channel)


MAKERS: Mapping[str, Callable[[Settings, str], Provider]] = {
    "smtp": _smtp,
    "resend": _resend,
    "twilio": _twilio,
    "fcm": _fcm,
    "remote": _remote,
    "mock": _mock,
}
