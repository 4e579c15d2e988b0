"""Everything that dispatchers do at once: no deadlock, nothing lost, and no endpoint that forgets when it is due."""

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

import pytest

from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer, ErrorClass, GiveUpReason, Verdict
from tests.integration.test_dispatcher_rig import DELIVERED, REFUSED, Rig, result

EVENTS = 600
ENDPOINTS = 6
BRIEF = timedelta(milliseconds=30)


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


class Storm:
    """Writers of events, fan-outs, claimers that succeed, fail, die, release and pause, and deletions."""

    def __init__(self, rig: Rig, endpoints: list[UUID], seed: int) -> None:
        self.rig = rig
        self.endpoints = endpoints
        self.dice = random.Random(seed)
        self.over = False

    async def run(self) -> None:
        writers = asyncio.gather(*(self.write_events() for _ in range(3)))
        others = asyncio.gather(
            *(self.fan_out() for _ in range(3)),
            *(self.claim() for _ in range(6)),
            *(self.give_up() for _ in range(2)),
            self.delete_one(),
        )
        await writers
        while await self.rig.value("SELECT count(*) FROM notifyqueue.webhook_events WHERE fanned_out_at IS NULL"):
            await asyncio.sleep(0)
        self.over = True
        await others

    async def write_events(self) -> None:
        for _ in range(EVENTS // 30):
            await self.rig.database.fetch(
                """
                INSERT INTO notifyqueue.webhook_events (
                  notification_id, tenant_id, status, redrive_count, attempt_count, channel, labels, occurred_at)
                SELECT gen_random_uuid(), 'default', 'SENT', 0, 1, 'EMAIL', '{}', now() FROM generate_series(1, 10)
                """
            )

    async def fan_out(self) -> None:
        while not self.over:
            await self.rig.store.fan_out_events()

    async def give_up(self) -> None:
        while not self.over:
            await self.rig.store.give_up_deleted()

    async def delete_one(self) -> None:
        for _ in range(20):
            await self.rig.store.fan_out_events()
        assert await self.rig.store.delete_endpoint("default", self.endpoints[0])

    async def claim(self) -> None:
        while not self.over:
            claimed = await self.rig.claim(cap=4, limit=12, lease=BRIEF, max_attempts=100)
            if claimed.deliveries:
                await self.end(list(claimed.deliveries))

    async def end(self, claimed: list[Delivery]) -> None:
        match self.dice.randrange(8):
            case 0:
                await self.rig.store.release_claim(claimed[0].claim_token)
            case 1:
                pass  # it died
            case 2:
                await asyncio.sleep(BRIEF.total_seconds())  # its lease is lost by now
                await self.record(claimed)
            case _:
                await self.record(claimed)

    async def record(self, claimed: list[Delivery]) -> None:
        self.dice.shuffle(claimed)
        await self.rig.store.record_results([result(delivery, *self.outcome()) for delivery in claimed])

    def outcome(self) -> tuple[Answer, Verdict]:
        match self.dice.randrange(6):
            case 0:
                return Answer(error=ErrorClass.TIMEOUT), Verdict(delay=BRIEF)
            case 1:
                return Answer(503, ErrorClass.STATUS), Verdict(delay=BRIEF, pause=BRIEF)
            case 2:
                return REFUSED, Verdict(give_up_reason=GiveUpReason.EXHAUSTED)
            case _:
                return Answer(204), DELIVERED


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_everything_deadlocks_nowhere_and_forgets_nothing(rig: Rig, seed: int) -> None:
    endpoints = [await rig.endpoint() for _ in range(ENDPOINTS)]
    await Storm(rig, endpoints, seed).run()  # a deadlock would be raised as Contention
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await rig.value(deadlocks) == 0
    forgotten = await rig.fetch(
        """
        SELECT e.id FROM notifyqueue.webhook_endpoints AS e
        JOIN notifyqueue.webhook_deliveries AS d ON d.endpoint_id = e.id
        WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL AND e.next_due_at > greatest(d.next_attempt_at, now())
        """
    )
    assert forgotten == []
    await finish(rig)
    assert await rig.value("SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE given_up_at IS NULL") == (
        await rig.value("SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE delivered_at IS NOT NULL")
    )
    per_endpoint = await rig.fetch(
        "SELECT endpoint_id, count(*) FROM notifyqueue.webhook_deliveries GROUP BY endpoint_id"
    )
    counts = {row["endpoint_id"]: row["count"] for row in per_endpoint}
    assert counts.pop(endpoints[0], 0) <= EVENTS
    assert counts == dict.fromkeys(endpoints[1:], EVENTS)


async def finish(rig: Rig) -> None:
    """Delivers what is left, looking only where the endpoints say that something is due."""
    while (seconds := await rig.store.read_next_due(10, timedelta(days=1))) is not None:
        await asyncio.sleep(max(seconds, 0))
        claimed = (await rig.claim(max_attempts=100, lease=BRIEF * 10)).deliveries
        await rig.store.record_results([result(delivery, Answer(204), DELIVERED) for delivery in claimed])
    while await rig.value(
        "SELECT count(*) FROM notifyqueue.webhook_endpoints WHERE deleted_at IS NOT NULL AND next_due_at < 'infinity'"
    ):
        await rig.store.give_up_deleted()
