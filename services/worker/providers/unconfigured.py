"""A provider that lacks what it needs. Its lane is not served by this worker; other lanes are."""

from typing import Self

from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code


class Missing(Exception):
    """A setting without which a provider cannot work. Carries its name."""

    def __init__(self, setting: str) -> None:
        super().__init__(f"{setting} is missing")
        self.setting = setting


class Unconfigured(Provider):
    """Takes the place of the provider called `name`, and takes nothing."""

    def __init__(self, name: str, setting: str) -> None:
        self.name = name
        self.setting = setting
        self.cause = safe_code(f"{setting}-missing")
        """What the lane's breaker says."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        return Outcome(Answer.MISCONFIGURED, self.cause)
