"""Which provider serves which channel, as the settings say."""

from collections.abc import Mapping

from services.worker.providers import Provider
from services.worker.settings import Settings


def open_providers(settings: Settings) -> Mapping[str, Provider]:
    return {}
