"""Which provider serves which channel, as the settings say."""

from collections.abc import Mapping

from services.worker.providers import Provider
from services.worker.providers.mock import Mock, MockSettings
from services.worker.providers.smtp import Smtp
from services.worker.settings import CHANNELS, Settings


def choose_providers(settings: Settings) -> Mapping[str, Provider]:
    """A provider for each lane that is served, not yet entered."""
    served = [channel for channel in CHANNELS if settings.provider(channel) != "none"]
    return {channel: _provider(settings, channel) for channel in served}


def _provider(settings: Settings, channel: str) -> Provider:
    if settings.provider(channel) == "smtp":
        return Smtp(settings.smtp())
    return Mock(MockSettings(url=settings.mock_url, timeout=settings.provider_timeout(channel)), channel)
