"""A provider for tests: it answers as it is told, and remembers every request it saw."""

import asyncio
from collections import Counter, defaultdict, deque
from types import TracebackType
from typing import Self
from uuid import UUID

from services.worker.providers import Answer, Handover, Message, Outcome

ACCEPTED = Outcome(Answer.ACCEPTED, provider_message_id="m-1")


class ScriptedProvider:
    """Answers each address with what was scripted for it, in order, and then accepts, unless told `otherwise`."""

    name = "scripted"

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.gate = asyncio.Event()
        """Requests wait for it, so that a test can hold them on the wire."""
        self.gate.set()
        self.otherwise: Outcome = ACCEPTED
        """Its answer to what has no script."""
        self.at_once = 0
        """The most requests that were on the wire at the same time."""
        self._on_the_wire = 0
        self._script: defaultdict[str, deque[Outcome | Exception]] = defaultdict(deque)

    def script(self, address: str, *answers: Outcome | Exception) -> None:
        """An exception is raised after the handover began."""
        self._script[address].extend(answers)

    @property
    def requests(self) -> Counter[UUID]:
        """How often each delivery key was on the wire."""
        return Counter(message.delivery_key for message in self.seen)

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        self.seen.append(message)
        handover.begin()
        self._on_the_wire += 1
        self.at_once = max(self.at_once, self._on_the_wire)
        try:
            await self.gate.wait()
        finally:
            self._on_the_wire -= 1
        answers = self._script[message.address]
        answer = answers.popleft() if answers else self.otherwise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        return None
