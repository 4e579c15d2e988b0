"""Which provider serves which channel, as the settings say."""

from collections.abc import Mapping

from services.worker.providers import Provider
from services.worker.providers.mock import Mock, MockSettings
from services.worker.providers.smtp import Smtp
from services.worker.settings import Settings


def choose_providers(settings: Settings) -> Mapping[str, Provider]:
    """A provider for each lane, not yet entered."""
    return {"EMAIL": _email(settings)}


def _email(settings: Settings) -> Provider:
    if settings.email_provider == "smtp":
        return Smtp(settings.smtp())
    return Mock(MockSettings(url=settings.mock_url, timeout=settings.email_provider_timeout), "EMAIL")
