"""When the sweeps begin, and what does not stop them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.worker import leases as leases_module
from services.worker.claim import Claim
from services.worker.leases import Leases
from services.worker.recovery import Recovery
from services.worker.store import WorkerStore
from shared.backoff import Backoff
from shared.database import Database
from shared.errors import DatabaseUnavailable
from tests.conftest import login
from tests.notifications import Notifications

LEASE = timedelta(minutes=1)
LONG_AGO = timedelta()  # the database started longer ago than this lease
YOUNGER = timedelta(days=365)  # than this lease it is


class Clock:
    """This process's own."""

    now = 1_000.0

    def tick(self) -> float:
        return self.now


class Flaky(WorkerStore):
    """Cut off from its database, as long as it is told to be."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._cut_off = False

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self._cut_off = True
        yield
        self._cut_off = False

    async def expire_overdue(self) -> list[tuple[str, str | None]]:
        if self._cut_off:
            raise DatabaseUnavailable
        return await super().expire_overdue()

    async def renew_leases(self, claims: object, lease: timedelta) -> set[UUID]:
        if self._cut_off:
            raise DatabaseUnavailable
        return set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases_module, "tick", clock.tick)
    return clock


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Flaky]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield Flaky(database)


class Sweeper:
    def __init__(self, store: WorkerStore, *, lease: timedelta = LONG_AGO) -> None:
        self.leases = Leases(store, lease=LEASE, held=lambda: [HELD], on_lost=lambda _: None)
        self.recovery = Recovery(
            store,
            self.leases,
            lease=lease,
            backoff=Backoff(timedelta(seconds=2), timedelta(minutes=15)),
            on_end=lambda: None,
            on_retry=lambda *_: None,
        )


HELD = Claim(
    notification_id=UUID(int=1),
    claim_token=UUID(int=1),
    channel="EMAIL",
    number=1,
    max_attempts=5,
    at_most_once=False,
    reconciled=False,
    maybe_delivered=False,
    time_left=None,
    address="someone@example.com",
    content=None,
    expiries=0,
    asked_at=0.0,
    tenant_id="default",
    limited=False,
)


async def let_claims_expire(notifications: Notifications, store: WorkerStore) -> None:
    await store.claim_due(
        "EMAIL",
        limit=256,
        classes=(3, 2, 1),
        due_for=timedelta(),
        token=uuid4(),
        worker_id=uuid4(),
        lease=LEASE,
        take_suspect=True,
    )
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET lease_expires_at = now() - interval '1 second'"
    )


async def test_nothing_is_swept_for_one_renewal_after_the_worker_began(
    notifications: Notifications, store: Flaky, clock: Clock
) -> None:
    sweeper = Sweeper(store)
    id_ = await notifications.insert("held")
    await let_claims_expire(notifications, store)
    clock.now += sweeper.leases.interval - 0.01
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"
    clock.now += 0.02
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PENDING"


@pytest.mark.parametrize("by", ["sweep", "renewal"])
async def test_nothing_is_swept_for_one_renewal_after_the_worker_was_cut_off(
    notifications: Notifications, store: Flaky, clock: Clock, by: str
) -> None:
    sweeper = Sweeper(store)
    clock.now += 2 * sweeper.leases.interval
    with store.cut_off():
        await (sweeper.recovery.sweep() if by == "sweep" else sweeper.leases.renew())
    id_ = await notifications.insert("held")
    await let_claims_expire(notifications, store)
    await sweeper.leases.renew()  # it is back: those who were cut off with it have time to say that they live
    clock.now += sweeper.leases.interval - 0.01
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"
    clock.now += 0.02
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PENDING"


@pytest.mark.parametrize("first", ["sweep", "renewal"])
async def test_a_worker_that_stood_still_renews_before_it_sweeps(
    notifications: Notifications, store: Flaky, clock: Clock, first: str
) -> None:
    """The claims that expired meanwhile may be its own, and still running."""
    sweeper = Sweeper(store)
    clock.now += sweeper.leases.interval
    await sweeper.leases.renew()
    id_ = await notifications.insert("held")
    await let_claims_expire(notifications, store)
    clock.now += 2 * sweeper.leases.interval + 0.01
    if first == "sweep":
        await sweeper.recovery.sweep()
        assert await notifications.status(id_) == "PROCESSING"
    await sweeper.leases.renew()
    clock.now += sweeper.leases.interval - 0.01
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"
    clock.now += 0.02
    await sweeper.recovery.sweep()
    assert await notifications.status(id_) == "PENDING"


async def test_nothing_is_swept_for_one_lease_after_the_database_started(
    notifications: Notifications, store: Flaky, clock: Clock
) -> None:
    young, old = Sweeper(store, lease=YOUNGER), Sweeper(store)
    id_ = await notifications.insert("held")
    await let_claims_expire(notifications, store)
    clock.now += 2 * young.leases.interval
    await young.recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"
    await old.recovery.sweep()
    assert await notifications.status(id_) == "PENDING"


async def test_a_page_of_rows_that_somebody_holds_hides_none_behind_it(
    notifications: Notifications, store: Flaky, clock: Clock, database_url: str
) -> None:
    """Claims that expired are taken 100 at a time, and what is overdue 500."""
    sweeper = Sweeper(store)
    clock.now += 2 * sweeper.leases.interval
    expired = await notifications.insert_many(102)
    await let_claims_expire(notifications, store)
    overdue = await many_overdue(notifications, 502)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(
                "SELECT FROM notifyqueue.notifications WHERE id = ANY ($1) FOR UPDATE", expired[:-1] + overdue[:-1]
            )
            await sweeper.recovery.sweep()
            assert await notifications.status(expired[-1]) == "PENDING"
            assert await notifications.status(overdue[-1]) == "EXPIRED"
            assert await notifications.statuses() == {"PROCESSING": 101, "PENDING": 502, "EXPIRED": 1}
    finally:
        await other.close()
    for _ in range(2):  # as many as there are pages
        await sweeper.recovery.sweep()
    assert await notifications.statuses() == {"PENDING": 102, "EXPIRED": 502}


async def many_overdue(notifications: Notifications, count: int) -> list[UUID]:
    rows = await notifications.connection.fetch(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority,"
        " max_attempts, due_at, next_attempt_at, expire_at)"
        " SELECT 'default', 'overdue-' || n, '', 'EMAIL', 'a@example.com', 2, 5, now() - interval '2 hours', now(),"
        " now() - interval '1 hour' + n * interval '1 millisecond' FROM generate_series(1, $1) AS n RETURNING id",
        count,
    )
    return [row["id"] for row in rows]
