"""Workers that are killed at each moment of an attempt: what becomes of it is judged by the provider's ledger."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from tests.conftest import login
from tests.ledger import Call, Ledger, message_id, open_ledger
from tests.notifications import Notifications
from tests.processes import QUICK, Running, environment, running
from tests.waiting import eventually
from tests.wiretap import Hold, Wiretap, wiretap

MODULE = "services.worker"
# What it holds does not end by itself before the test has come to its moment.
PATIENT = {"LEASE": "60", "EMAIL_PROVIDER_TIMEOUT": "30"}

CLAIMED = "claimed"
STARTED = "started"
CALLING = "calling"
ANSWERED = "answered"
UNWRITTEN = "unwritten"
UNHEARD = "unheard"

UNKNOWN = ["ATTEMPT_UNKNOWN"]
# Moment: status and reason at the end, attempts that count, the history, and the attempts that were on the wire.
Ending = tuple[str, str | None, int, list[str], list[int]]
AT_LEAST_ONCE: Mapping[str, Ending] = {
    CLAIMED: ("SENT", None, 2, UNKNOWN, [2]),
    CALLING: ("SENT", None, 2, UNKNOWN, [1, 2]),
    ANSWERED: ("SENT", None, 2, UNKNOWN, [1, 2]),
    UNWRITTEN: ("SENT", None, 2, UNKNOWN, [1, 2]),
    UNHEARD: ("SENT", None, 1, [], [1]),
}
AT_MOST_ONCE: Mapping[str, Ending] = {
    CLAIMED: ("SENT", None, 1, [], [1]),
    STARTED: ("FAILED", "OUTCOME_UNKNOWN", 1, UNKNOWN, []),
    CALLING: ("FAILED", "OUTCOME_UNKNOWN", 1, UNKNOWN, [1]),
    ANSWERED: ("FAILED", "OUTCOME_UNKNOWN", 1, UNKNOWN, [1]),
    UNWRITTEN: ("FAILED", "OUTCOME_UNKNOWN", 1, UNKNOWN, [1]),
    UNHEARD: ("SENT", None, 1, [], [1]),
}


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger() as ledger:
        yield ledger


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[Wiretap]:
    async with wiretap(database_url) as wire:
        yield wire


async def wake(notifications: Notifications) -> None:
    await notifications.connection.execute("NOTIFY notifyqueue_lane_email")


async def let_leases_pass(notifications: Notifications) -> None:
    """Of what the dead held; nobody renews it."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET lease_expires_at = now() - interval '1 second'"
        " WHERE status = 'PROCESSING'"
    )


async def ended(notifications: Notifications) -> bool:
    return not {"PENDING", "PROCESSING"} & (await notifications.statuses()).keys()


class Scene:
    """One notification at each moment, all in the hands of one worker."""

    def __init__(self, notifications: Notifications, ledger: Ledger, wire: Wiretap, victim: Running) -> None:
        self.ids: dict[str, UUID] = {}
        self._notifications = notifications
        self._ledger = ledger
        self._wire = wire
        self._victim = victim
        self._held: dict[str, Hold] = {}
        self._killing = asyncio.Event()
        ledger.before_answer = self._before_answer
        ledger.after_answer = self._after_answer

    async def bring(self, moment: str, *, at_most_once: bool) -> None:
        """Until the moment has come."""
        if moment == CLAIMED:
            self._held[moment] = self._wire.answers.hold(f"{moment}@example.com".encode())
        id_ = self.ids[moment] = await self._notifications.insert(
            moment, address=f"{moment}@example.com", at_most_once=at_most_once
        )
        if moment == STARTED:
            self._wire.questions.watch(id_.bytes, self._hold_start)
        await wake(self._notifications)
        await eventually(lambda: self._has_come(moment))

    async def kill(self) -> None:
        """In the instant after an answer has left the provider."""
        self._victim.send(signal.SIGSTOP)
        self._killing.set()
        assert await self._victim.wait() == -signal.SIGKILL

    def _has_come(self, moment: str) -> bool:
        if moment in (CALLING, ANSWERED):
            return self._ledger.requests[self.ids[moment]] == 1
        return moment in self._held and self._held[moment].caught.is_set()

    async def _hold_start(self) -> None:
        self._held[STARTED] = self._wire.answers.hold(self.ids[STARTED].bytes)

    async def _before_answer(self, call: Call) -> None:
        moment = call.address.partition("@")[0]
        if call.worker != "first":
            return
        if moment == CALLING:
            await asyncio.Event().wait()
        if moment == ANSWERED:
            await self._killing.wait()
        if moment == UNWRITTEN:
            self._held[moment] = self._wire.questions.hold(message_id(call.delivery_key).encode())
        if moment == UNHEARD:
            self._held[moment] = self._wire.answers.hold(call.delivery_key.bytes)

    def _after_answer(self, call: Call) -> None:
        if self._killing.is_set():
            self._victim.send(signal.SIGKILL)
            self._ledger.after_answer = lambda _: None


@pytest.mark.parametrize("at_most_once", [False, True], ids=["at_least_once", "at_most_once"])
async def test_killed_at_any_moment_each_goes_on_from_what_can_be_known(
    database_url: str, notifications: Notifications, ledger: Ledger, wire: Wiretap, tmp_path: Path, at_most_once: bool
) -> None:
    expected = AT_MOST_ONCE if at_most_once else AT_LEAST_ONCE
    url = login(database_url, "worker")
    first = environment(url, **{**QUICK, **PATIENT, **wire.settings(url), **ledger.settings("first")})
    async with running(MODULE, tmp_path, first) as victim:
        await victim.logged("process.ready")
        scene = Scene(notifications, ledger, wire, victim)
        for moment in sorted(expected, key=lambda moment: moment == CLAIMED):  # its lane claims nothing after that
            await scene.bring(moment, at_most_once=at_most_once)
        await scene.kill()
    assert await notifications.statuses() == {"PROCESSING": len(expected) - 1, "SENT": 1}

    await let_leases_pass(notifications)
    async with running(MODULE, tmp_path, environment(url, **{**QUICK, **ledger.settings("second")})):
        await eventually(lambda: ended(notifications), within=60)
    for moment, id_ in scene.ids.items():
        row = await notifications.get(id_)
        history = [entry["kind"] for entry in await notifications.history(id_)]
        on_the_wire = [call.attempt for call in ledger.calls if call.delivery_key == id_]
        found = (row["status"], row["failure_reason"], row["attempt_count"], history, on_the_wire)
        assert (moment, found) == (moment, expected[moment])
        assert await notifications.events(id_) == [row["status"]]


async def test_one_poison_among_200_in_flight_is_dead_lettered_alone_and_nobody_is_on_the_wire_more_than_three_times(
    database_url: str, notifications: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    """Whoever calls for the poison dies, with all that it holds. With three attempts each, no neighbour ends for it."""
    ids = await notifications.insert_many(199, max_attempts=3)
    poison = await notifications.insert("poison", address="poison@example.com", max_attempts=3, priority=3)
    together = asyncio.Event()
    victims: list[Running] = []

    async def kill(call: Call) -> None:
        if len(ledger.calls) == 200:
            together.set()
        await together.wait()  # at first all are under way
        if call.delivery_key == poison:
            victims[-1].send(signal.SIGKILL)

    ledger.before_answer = kill
    settings = {**QUICK, "LEASE": "6", "EMAIL_PROVIDER_TIMEOUT": "3.9", "WORKER_CONCURRENCY": "512", "RETRY_CAP": "0.4"}
    lives = 0
    while not await ended(notifications):
        lives += 1
        url = environment(login(database_url, "worker"), **{**settings, **ledger.settings(f"worker-{lives}")})
        async with running(MODULE, tmp_path, url) as worker:
            victims.append(worker)
            await eventually(lambda worker=worker: _over(notifications, worker), within=60)  # type: ignore[misc]
        await let_leases_pass(notifications)
    assert lives == 5
    assert await notifications.statuses() == {"SENT": 199, "DEAD_LETTERED": 1}
    row = await notifications.get(poison)
    assert (row["failure_reason"], row["reconciliation_granted"]) == ("WORKER_LOST", True)
    assert [call.attempt for call in ledger.calls if call.delivery_key == poison] == [1, 2, 3, 4]
    assert max(ledger.requests[id_] for id_ in ids) <= 3
    events = await notifications.connection.fetch(
        "SELECT status, count(DISTINCT notification_id) AS ended, count(*) AS told"
        " FROM notifyqueue.webhook_events GROUP BY status"
    )
    assert {row["status"]: (row["ended"], row["told"]) for row in events} == {
        "SENT": (199, 199),
        "DEAD_LETTERED": (1, 1),
    }


async def _over(notifications: Notifications, worker: Running) -> bool:
    return not worker.alive or await ended(notifications)
