"""Recipients' limits, by workers as they run: who starts when, judged by the provider's own record."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from services.worker.admission import Admission, Entry, Ticket
from services.worker.claim import Claim, Recipient
from services.worker.gates import Gates
from services.worker.outcome import Sent, unstarted
from services.worker.providers import Answer, Outcome
from services.worker.retention import Retention
from services.worker.retention_store import RetentionStore
from services.worker.shared_lane import LaneFacts, SharedLane
from services.worker.store import Record, Store
from services.worker.turnstile_store import Gate, TurnstileStore
from shared import admin
from shared.database import Database
from shared.errors import DatabaseUnavailable
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.recipients import TimedProvider, gates, limit, most_claims, most_in_a_window, waiting
from tests.waiting import eventually

HOUR = timedelta(hours=1)
HOT, OTHER = "hot@example.com", "other@example.com"
OFTEN: dict[str, Any] = {"poll_interval": 0.2}


@pytest.fixture
def provider() -> TimedProvider:
    return TimedProvider()


def counts(notifications: Notifications, **expected: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await notifications.statuses() == expected

    return look


def waits(notifications: Notifications, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await waiting(notifications) == count

    return look


async def reservations(notifications: Notifications) -> list[UUID]:
    rows = await notifications.connection.fetch("SELECT notification_id FROM notifyqueue.recipient_reservations")
    return [row["notification_id"] for row in rows]


async def test_what_may_not_start_yet_waits_and_costs_no_attempt(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 3, HOUR)
    ids = await notifications.insert_many(20, address=HOT)
    with structlog.testing.capture_logs() as logged:
        await start_worker(database_url, provider)
        await eventually(counts(notifications, SENT=3, PENDING=17))
        await eventually(waits(notifications, 17))
        await eventually(lambda: [entry["event"] for entry in logged].count("job.waiting") >= 17)
    assert {entry["notification_id"] for entry in logged if entry["event"] == "job.waiting"} >= {
        str(id_) for id_ in ids if await notifications.status(id_) == "PENDING"
    }
    assert len(provider.seen) == 3
    for id_ in ids:
        row = await notifications.get(id_)
        history = [(entry["kind"], entry["attempt"]) for entry in await notifications.history(id_)]
        assert (row["attempt_count"], history) == ((0, [("WAITED", 0)]) if row["waiting"] else (1, []))
        assert row["next_attempt_at"] == row["due_at"]  # its place in the queue


async def test_over_several_windows_none_holds_more_and_each_is_claimed_at_most_twice(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, most, window = 300, 100, timedelta(seconds=1)
    await limit(notifications, most, window)
    await notifications.insert_many(count, address=HOT)
    ask = Admission.ask

    async def late(admission: Admission, claim: Claim) -> Ticket:
        await asyncio.sleep(random.uniform(0, 0.1))
        return await ask(admission, claim)

    monkeypatch.setattr(Admission, "ask", late)
    for _ in range(2):
        await start_worker(database_url, provider, **OFTEN)
    await eventually(counts(notifications, SENT=count), within=60)
    calls = provider.calls[HOT]
    assert len(calls) == len({id_ for _, id_ in calls}) == count
    assert most_in_a_window(calls, window) <= most
    assert await most_claims(notifications) <= 2
    assert await gates(notifications) == 0


async def test_a_call_that_would_come_too_late_after_its_admission_is_admitted_anew(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = timedelta(seconds=0.5)
    await limit(notifications, 5, window)
    await notifications.insert_many(20, address=HOT)
    ask, asked = Admission.ask, Counter[UUID]()

    async def late(admission: Admission, claim: Claim) -> Ticket:
        ticket = await ask(admission, claim)
        asked[claim.notification_id] += ticket.entry is Entry.STARTS
        if random.random() < 0.5:
            await asyncio.sleep(0.3)  # far more than it may be late
        return ticket

    monkeypatch.setattr(Admission, "ask", late)
    await start_worker(database_url, provider, **OFTEN)
    await eventually(counts(notifications, SENT=20), within=60)
    assert provider.requests.total() == 20
    assert asked.total() > 20
    assert most_in_a_window(provider.calls[HOT], window) <= 5


async def test_high_overtakes_who_waits(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 1, timedelta(seconds=0.6))
    await notifications.insert_many(6, address=HOT)
    await start_worker(database_url, provider, **OFTEN)
    await eventually(waits(notifications, 5))
    high = await notifications.insert("urgent", address=HOT, priority=3)

    async def stands_at_the_gate() -> bool:
        return bool(await notifications.history(high))

    await eventually(stands_at_the_gate)
    before = len(provider.seen)
    await eventually(counts(notifications, SENT=7))
    assert provider.order(HOT).index(high) <= before + 1  # one may have been called up already


@pytest.mark.parametrize(
    "stop", ["paused_at = now(), paused_by = 'key:1', pause_reason = 'r'", "held_until = now() + interval '1 hour'"]
)
async def test_a_pause_or_a_hold_keeps_the_order_and_calls_nobody_up(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str, stop: str
) -> None:
    window = timedelta(seconds=0.6)
    await limit(notifications, 1, window)
    ids = [
        await notifications.insert(f"nr-{number}", address=HOT, due_in=timedelta(seconds=number - 60))
        for number in range(6)
    ]
    await start_worker(database_url, provider, **OFTEN)
    await eventually(waits(notifications, 5))
    await notifications.connection.execute(f"UPDATE notifyqueue.lanes SET {stop}")
    await notifications.connection.execute("NOTIFY notifyqueue_lanes")

    async def gate_is_due() -> bool:
        due: bool = await notifications.connection.fetchval(
            "SELECT bool_and(opens_at < now() - interval '0.5 s') FROM notifyqueue.recipient_gates"
        )
        return due

    await eventually(gate_is_due)
    await notifications.connection.execute(
        "UPDATE notifyqueue.lanes SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, held_until = now()"
    )
    await notifications.connection.execute("NOTIFY notifyqueue_lanes")
    await eventually(counts(notifications, SENT=6))
    assert provider.order(HOT) == ids
    assert most_in_a_window(provider.calls[HOT], window) == 1


async def test_a_retry_starts_in_its_own_slot_and_holds_it_from_then_on(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    window = timedelta(seconds=2)
    await limit(notifications, 1, window)
    first = await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    second = await notifications.insert("second", address=HOT)
    provider.script(HOT, Outcome(Answer.TRANSIENT, code="451"))
    await start_worker(database_url, provider, retry_base=0.2, retry_cap=0.2, **OFTEN)
    await eventually(counts(notifications, SENT=2))
    assert provider.order(HOT) == [first, first, second]
    at = [when for when, _ in provider.calls[HOT]]
    assert at[1] - at[0] < window.total_seconds() <= at[2] - at[1]


async def test_a_limit_that_is_raised_or_taken_away_takes_effect(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)

    async def owner(*arguments: str) -> None:
        assert await asyncio.to_thread(admin.main, ("tenant", "set", "default", *arguments)) == 0

    await owner("--recipient-limit", "1", "--recipient-window", "1h")
    await notifications.insert_many(10, address=HOT)
    await start_worker(database_url, provider, **OFTEN)
    await eventually(waits(notifications, 9))
    await owner("--recipient-limit", "4")
    await eventually(counts(notifications, SENT=4, PENDING=6))
    await owner("--recipient-limit", "2")
    assert not await notifications.connection.fetchval("SELECT bool_or(granted) FROM notifyqueue.notifications")
    await owner("--recipient-window", "1s")
    await eventually(lambda: len(provider.seen) >= 6)
    await owner("--no-recipient-limit")
    await eventually(counts(notifications, SENT=10))
    assert await gates(notifications) == 0


async def test_others_are_sent_while_one_waits(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 1, HOUR)
    for number in range(60):
        await notifications.insert(f"hot-{number}", address=HOT, priority=3)
    for number in range(60):
        await notifications.insert(f"other-{number}", address=f"other-{number}@example.com", priority=1)
    await notifications.insert("sms", channel="SMS", address=HOT)  # another lane is another recipient
    await start_worker(database_url, {"EMAIL": provider, "SMS": TimedProvider()}, worker_concurrency=8)
    await eventually(counts(notifications, SENT=62, PENDING=59))
    await eventually(waits(notifications, 59))


async def test_without_a_limit_there_is_no_statement_and_no_row(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> Ticket:
        raise AssertionError

    monkeypatch.setattr(Admission, "ask", refuse)
    await notifications.insert_many(20, address=HOT)
    await start_worker(database_url, provider)
    await eventually(counts(notifications, SENT=20))
    assert await reservations(notifications) == []


async def test_a_renewal_that_meets_somebody_just_put_to_wait_calls_nothing_lost(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert_many(2, address=HOT)
    ask, renewed = Admission.ask, asyncio.Event()

    async def meet(admission: Admission, claim: Claim) -> Ticket:
        ticket = await ask(admission, claim)
        if ticket.entry is Entry.WAITS:
            await renewed.wait()
        return ticket

    monkeypatch.setattr(Admission, "ask", meet)
    with structlog.testing.capture_logs() as logged:
        worker = await start_worker(database_url, provider)
        await eventually(waits(notifications, 1))
        for claim in list(worker.renewable()):
            worker.lose(claim)
        renewed.set()
        await eventually(lambda: worker.in_flight == 0)
    assert "job.claim_lost" not in {entry["event"] for entry in logged}


async def test_who_waits_expires_like_everybody(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    second = await notifications.insert("second", address=HOT)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET expire_at = now() + interval '1.5 s' WHERE id = $1", second
    )
    await start_worker(database_url, provider)
    await eventually(counts(notifications, SENT=1, EXPIRED=1))
    assert await notifications.events(second) == ["EXPIRED"]


async def test_what_expires_between_its_admission_and_its_call_gives_its_slot_back(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: TimedProvider,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("slow", address=HOT, due_in=timedelta(seconds=-9))
    await notifications.connection.execute("UPDATE notifyqueue.notifications SET expire_at = now() + interval '2 s'")
    ask = Admission.ask

    async def late(admission: Admission, claim: Claim) -> Ticket:
        ticket = await ask(admission, claim)
        if claim.time_left is not None:
            assert ticket.took_slot
            await asyncio.sleep(claim.aged().time_left.total_seconds())  # type: ignore[union-attr]
        return ticket

    monkeypatch.setattr(Admission, "ask", late)
    await start_worker(database_url, provider)
    await eventually(counts(notifications, EXPIRED=1))
    assert await reservations(notifications) == []
    await notifications.insert("next", address=HOT)
    await eventually(counts(notifications, EXPIRED=1, SENT=1))


async def test_an_open_breaker_still_finds_somebody_to_probe_with(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("waits", address=HOT, waiting=True)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)"
        " VALUES ('default', 'EMAIL hot@example.com', 'EMAIL', now())"
    )
    await notifications.connection.execute(
        "UPDATE notifyqueue.lanes SET opened_at = now(), cause = 'x', probe_at = now(), probe_delay = '1 s'"
    )
    await start_worker(database_url, provider, **OFTEN)
    await eventually(counts(notifications, SENT=1))


async def test_what_is_suppressed_when_it_is_called_up_leaves_its_slot_to_the_next(
    notifications: Notifications, start_worker: StartWorker, provider: TimedProvider, database_url: str
) -> None:
    await limit(notifications, 1, HOUR)
    for number in range(3):
        await notifications.insert(f"news {number}", address=HOT, category="news", priority=3, waiting=True)
    other = await notifications.insert("other", address=HOT, waiting=True)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, category, source)"
        " VALUES ('default', 'EMAIL', 'hot@example.com', 'news', 'OPTED_OUT')"
    )
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)"
        " VALUES ('default', 'EMAIL hot@example.com', 'EMAIL', now())"
    )
    await start_worker(database_url, provider, **OFTEN)
    await eventually(counts(notifications, SUPPRESSED=3, SENT=1))
    assert provider.requests == {other: 1}


# --- without a worker


class Rig:
    """The turnstile of one worker."""

    def __init__(self, database: Database) -> None:
        self.store = Store(database)
        self.turnstile = TurnstileStore(database)
        self.admission = Admission(self.turnstile, lease=timedelta(minutes=1), on_wait=lambda *_: None)
        lane = SharedLane("EMAIL", 64)
        lane.apply(LaneFacts("EMAIL", paused=False, opening=0, open=False, probe_in=0, held_for=0))
        self.gates = Gates(self.turnstile, lane, poll_interval=1, on_open=lambda _: None)

    async def claim(self, limit: int = 1) -> list[Claim]:
        return await self.store.claim_due(
            "EMAIL",
            limit=limit,
            classes=(3, 2, 1),
            due_for=timedelta(),
            token=uuid4(),
            worker_id=uuid4(),
            lease=timedelta(minutes=1),
            take_suspect=True,
        )

    async def turn(self, limit: int = 1) -> list[Entry]:
        return [(await self.admission.ask(claim)).entry for claim in await self.claim(limit)]


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield Rig(database)


@pytest.fixture
async def one_waits(notifications: Notifications, rig: Rig) -> UUID:
    """Behind one that started, with a limit of one an hour."""
    await limit(notifications, 1, HOUR)
    await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    second = await notifications.insert("second", address=HOT)
    assert await rig.turn(2) == [Entry.STARTS, Entry.WAITS]
    return second


async def pass_window(notifications: Notifications) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.recipient_reservations"
        " SET started_at = started_at - interval '2 hours', leaves_at = leaves_at - interval '2 hours'"
    )
    await notifications.connection.execute("UPDATE notifyqueue.recipient_gates SET opens_at = now()")


async def test_an_answer_that_was_cut_off_can_be_asked_for_again(notifications: Notifications, rig: Rig) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    await notifications.insert("second", address=HOT)
    claims = await rig.claim(2)
    for _ in range(2):
        assert [(await rig.admission.ask(claim)).entry for claim in claims] == [Entry.STARTS, Entry.WAITS]
    assert await reservations(notifications) == [claims[0].notification_id]
    assert len(await notifications.history(claims[1].notification_id)) == 1


async def test_a_claim_that_was_lost_is_not_admitted(notifications: Notifications, rig: Rig) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("one", address=HOT)
    (claim,) = await rig.claim()
    await rig.store.retry_later([Record(claim, unstarted(claim))])  # type: ignore[arg-type]
    assert (await rig.admission.ask(claim)).entry is Entry.LOST
    assert await reservations(notifications) == []


async def test_admission_is_the_start_fence_as_well(notifications: Notifications, rig: Rig) -> None:
    await limit(notifications, 1, HOUR)
    id_ = await notifications.insert("once", address=HOT, at_most_once=True)
    assert await rig.turn() == [Entry.STARTS]
    assert (await notifications.get(id_))["started_at"] is not None


async def test_admission_renews_the_lease(notifications: Notifications, rig: Rig) -> None:
    await limit(notifications, 1, HOUR)
    id_ = await notifications.insert("late", address=HOT)
    (claim,) = await rig.claim()
    before = (await notifications.get(id_))["lease_expires_at"]
    assert (await rig.admission.ask(claim)).entry is Entry.STARTS
    assert (await notifications.get(id_))["lease_expires_at"] > before


async def test_a_slot_that_was_never_used_is_given_back_by_its_holder_only(
    notifications: Notifications, rig: Rig
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    second = await notifications.insert("second", address=HOT)
    first, other = await rig.claim(2)
    assert (await rig.admission.ask(first)).took_slot
    assert (await rig.admission.ask(other)).entry is Entry.WAITS
    await rig.admission.give_back(other)
    assert await reservations(notifications) == [first.notification_id]
    await rig.admission.give_back(first)
    assert await reservations(notifications) == []
    assert await rig.gates.open(1) == 1  # at once: it was set to be looked at in an hour
    assert (await notifications.get(second))["granted"]


async def test_a_slot_that_was_kept_and_never_used_is_given_back_too(
    notifications: Notifications, rig: Rig, one_waits: UUID
) -> None:
    await pass_window(notifications)
    assert await rig.gates.open(1) == 1
    (claim,) = await rig.claim()
    assert (await rig.admission.ask(claim)).took_slot
    assert not (await rig.admission.ask(claim)).took_slot
    await rig.admission.give_back(claim)
    assert one_waits not in await reservations(notifications)


async def test_a_released_claim_keeps_the_slot_that_was_kept_for_it(
    notifications: Notifications, rig: Rig, one_waits: UUID
) -> None:
    await pass_window(notifications)
    assert await rig.gates.open(1) == 1
    (claim,) = await rig.claim()
    await rig.store.retry_later([Record(claim, unstarted(claim))])  # type: ignore[arg-type]
    assert (await notifications.get(one_waits))["granted"]
    third = await notifications.insert("third", address=HOT, priority=3)
    assert await rig.turn() == [Entry.WAITS]
    assert (await notifications.get(third))["waiting"]
    assert await rig.turn() == [Entry.STARTS]


@pytest.mark.parametrize("end", ["SENT", "CANCELLED"])
async def test_a_slot_comes_free_when_whoever_was_called_up_ends_or_is_put_off(
    notifications: Notifications, rig: Rig, one_waits: UUID, end: str
) -> None:
    await pass_window(notifications)
    assert await rig.gates.open(1) == 1
    if end == "SENT":  # its tenant has no limit meanwhile, so nobody asked for admission
        await limit(notifications, None, None)
        (claim,) = await rig.claim()
        assert not claim.limited
        await rig.store.mark_sent([Record(claim, Sent())])
        await limit(notifications, 1, HOUR)
    else:
        await notifications.connection.execute(
            "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now(), granted = false"
            " WHERE id = $1",
            one_waits,
        )
    await notifications.insert("third", address=HOT)
    assert await rig.turn() == [Entry.STARTS]


async def test_a_gate_at_which_nobody_waits_goes_away(notifications: Notifications, rig: Rig, one_waits: UUID) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now(), waiting = false WHERE id = $1",
        one_waits,
    )
    assert await gates(notifications) == 1
    await pass_window(notifications)
    assert await rig.gates.open(1) == 0
    assert await gates(notifications) == 0


async def test_a_gate_that_opens_too_early_calls_nobody_up_and_stays(
    notifications: Notifications, rig: Rig, one_waits: UUID
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.recipient_gates SET opens_at = now()")
    assert await rig.gates.open(1) == 0
    seconds = await rig.turnstile.read_next_gate("EMAIL")
    assert seconds is not None
    assert 3_500 < seconds <= 3_602


async def test_a_gate_that_was_set_by_an_old_limit_is_looked_at_at_once(
    notifications: Notifications, rig: Rig, one_waits: UUID
) -> None:
    async with rig.turnstile.turn() as turn:
        (recipient,) = await turn.try_recipients([Recipient("default", f"EMAIL {HOT}")])
        window, _ = (await turn.read_windows([recipient]))[recipient]
        await turn.set_gates([Gate(recipient, "EMAIL", HOUR, window)])
        assert (await rig.turnstile.read_next_gate("EMAIL") or 0) > 3_000
        await limit(notifications, 2, HOUR)  # meanwhile
        await turn.set_gates([Gate(recipient, "EMAIL", HOUR, window)])
    assert await rig.gates.open(1) == 1
    assert (await notifications.get(one_waits))["granted"]


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_who_waits_at_no_gate_gets_one(notifications: Notifications, rig: Rig, one_waits: UUID) -> None:
    for number in range(5):
        await notifications.insert(f"lost-{number}", address=f"lost-{number}@example.com", waiting=True)
    await notifications.connection.execute("DELETE FROM notifyqueue.recipient_gates")
    with structlog.testing.capture_logs() as logged:
        await rig.gates.mend()
        await rig.gates.mend()
    assert [entry["count"] for entry in logged if entry["event"] == "gates.mended"] == [6]
    assert await rig.gates.open(64) == 5  # the sixth has no room yet
    assert await gates(notifications) == 1


async def test_reservations_go_when_they_have_left_the_window_and_not_before(
    notifications: Notifications, database_url: str, rig: Rig, one_waits: UUID
) -> None:
    async with Database(login(database_url, "worker"), name="test") as database:
        retention = Retention(RetentionStore(database), retention=timedelta(0), content_retention=timedelta(0))
        await retention.sweep()
        assert len(await reservations(notifications)) == 1
        await pass_window(notifications)
        await retention.sweep()
        assert await reservations(notifications) == []


async def test_a_database_that_is_away_admits_nobody_and_is_asked_again(
    notifications: Notifications, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("one", address=HOT)
    (claim,) = await rig.claim()
    turn, away = TurnstileStore.turn, [True, True]

    def fail(store: TurnstileStore) -> Any:
        if away:
            away.pop()
            raise DatabaseUnavailable
        return turn(store)

    monkeypatch.setattr(TurnstileStore, "turn", fail)
    assert (await rig.admission.ask(claim)).entry is Entry.STARTS
    assert not away
