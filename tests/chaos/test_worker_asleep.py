"""A worker that stands still for twice its lease, while another takes over what it held."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

from tests.conftest import login
from tests.ledger import Call, open_ledger
from tests.notifications import Notifications
from tests.processes import QUICK, environment, running
from tests.waiting import eventually
from tests.wiretap import wiretap

MODULE = "services.worker"
LEASE = 2.0


async def claimed_two_leases_ago(notifications: Notifications, id_: UUID) -> bool:
    """Recovered a lease ago, so claimed two leases ago, by the database's clock."""
    passed: bool = await notifications.connection.fetchval(
        "SELECT h.happened_at + $2 * interval '1 second' < now() FROM notifyqueue.notification_history AS h"
        " WHERE h.notification_id = $1 AND h.kind = 'ATTEMPT_UNKNOWN'",
        id_,
        LEASE,
    )
    return passed


async def test_asleep_for_twice_its_lease_it_sends_nothing_that_others_took_and_calls_it_lost(
    database_url: str, notifications: Notifications, tmp_path: Path
) -> None:
    url = login(database_url, "worker")
    let_go = asyncio.Event()
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger())
        wire = await stack.enter_async_context(wiretap(database_url))
        brief = {**QUICK, "LEASE": LEASE, "EMAIL_PROVIDER_TIMEOUT": "1.3"}
        first = environment(url, **{**brief, **wire.settings(url), **ledger.settings("sleeper")})
        sleeper = await stack.enter_async_context(running(MODULE, tmp_path, first))
        await sleeper.logged("process.ready")

        async def hold(call: Call) -> None:
            if call.worker == "sleeper" or call.address == "held@example.com":
                await let_go.wait()

        async def fall_asleep() -> None:
            sleeper.send(signal.SIGSTOP)  # the claim's answer is there, and unread

        ledger.before_answer = hold
        calling = await notifications.insert("calling", address="calling@example.com")
        await eventually(lambda: bool(ledger.calls))
        wire.answers.watch(b"held@example.com", fall_asleep)
        async with notifications.connection.transaction():
            claimed = [await notifications.insert(f"claimed-{number}") for number in range(10)]
            held = await notifications.insert("held", address="held@example.com")
            await notifications.connection.execute("NOTIFY notifyqueue_lane_email")

        second = environment(
            url, **{**QUICK, "LEASE": "6", "EMAIL_PROVIDER_TIMEOUT": "3.9"}, **ledger.settings("other")
        )
        await stack.enter_async_context(running(MODULE, tmp_path, second))
        others = {calling, held, *claimed}
        await eventually(lambda: set(ledger.made_by("other")) == others, within=60)
        await eventually(lambda: claimed_two_leases_ago(notifications, held))
        sleeper.send(signal.SIGCONT)  # the other one still has `held` on the wire, and has recorded the rest

        async def all_called_lost() -> bool:
            lost = [line for line in sleeper.events() if line["event"] == "job.claim_lost"]
            return {UUID(line["notification_id"]) for line in lost} == others

        await eventually(all_called_lost)
        let_go.set()

        async def all_sent() -> bool:
            return await notifications.statuses() == {"SENT": 12}

        await eventually(all_sent)
        sleeper.send(signal.SIGTERM)
        assert await sleeper.wait() == 0
        assert ledger.made_by("sleeper") == [calling]
        assert sorted(ledger.made_by("other")) == sorted(others)
    for id_ in others:
        assert await notifications.events(id_) == ["SENT"]
        assert [entry["kind"] for entry in await notifications.history(id_)] == ["ATTEMPT_UNKNOWN"]
