"""A provider that lacks what it needs. Its lane is not served by this worker; other lanes are."""

from typing import Self

from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code


class Missing(Exception):
    """Settings without which a provider cannot work. Carries their names."""

    def __init__(self, *settings: str) -> None:
        super().__init__(f"missing: {', '.join(settings)}")
        self.settings = settings


def missing(setting: str) -> str:
    """Why a lane is not served, as a code."""
    return safe_code(f"{setting}-missing")


class Unconfigured(Provider):
    """Takes the place of the provider called `name`, and takes nothing."""

    def __init__(self, name: str, *settings: str) -> None:
        self.name = name
        self.settings = settings
        self.cause = missing(settings[0])
        """What the lane's breaker says: one of them, for it is a code."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        return Outcome(Answer.MISCONFIGURED, self.cause)
