"""Nothing loops for ever: what breaks its adapter each time before the call ends, alone and among others."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from services.worker.providers import Handover, Message, Outcome
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

CAP = 3
HASTY: dict[str, Any] = {"retry_base": 0.05, "retry_cap": 0.1, "probe_base": 0.2, "probe_cap": 0.2}


class Breaking(ScriptedProvider):
    """Raises before the handover for whatever is poison, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: Counter[UUID] = Counter()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        if message.address.startswith("poison"):
            self.broken[message.delivery_key] += 1
            raise KeyError(message.address)
        return await super().deliver(message, handover)


@pytest.fixture
def provider() -> Breaking:
    return Breaking()


async def test_what_always_breaks_the_adapter_before_the_call_is_dead_lettered_at_its_cap(
    notifications: Notifications, start_worker: StartWorker, provider: Breaking, database_url: str
) -> None:
    id_ = await notifications.insert("poison", address="poison@example.com", max_attempts=CAP)
    await start_worker(database_url, provider, **HASTY)

    async def dead() -> bool:
        return await notifications.status(id_) == "DEAD_LETTERED"

    await eventually(dead)
    row = await notifications.get(id_)
    assert (row["failure_reason"], row["attempt_count"]) == ("ATTEMPTS_EXHAUSTED", CAP)
    assert (row["provider_code"], row["maybe_delivered"]) == ("adapter_error", False)
    assert provider.broken == {id_: CAP}
    assert await notifications.events(id_) == ["DEAD_LETTERED"]


async def test_several_that_open_the_breaker_again_and_again_are_dead_lettered_while_others_are_sent(
    notifications: Notifications, start_worker: StartWorker, provider: Breaking, database_url: str
) -> None:
    """What is refunded while the breaker is open is bounded, because whoever is sent closes it."""
    poison = [
        await notifications.insert(f"poison {n}", address=f"poison{n}@example.com", max_attempts=CAP) for n in range(4)
    ]
    await start_worker(database_url, provider, **HASTY)
    healthy: list[UUID] = []

    async def all_dead() -> bool:
        healthy.append(await notifications.insert(f"healthy {len(healthy)}"))
        return [await notifications.status(id_) for id_ in poison] == ["DEAD_LETTERED"] * len(poison)

    await eventually(all_dead, within=60)

    async def all_sent() -> bool:
        return (await notifications.statuses())["SENT"] == len(healthy)

    await eventually(all_sent)
    assert provider.requests == dict.fromkeys(healthy, 1)
    assert min(provider.broken.values()) >= CAP
