"""The statements of all services on one database, called one by one from code that is not asynchronous."""

import asyncio
import random
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import asyncpg

from services.scheduler.accept_store import AcceptStore
from services.scheduler.changes import Rescheduling
from services.scheduler.redrives import Redriving
from services.worker.leases import Leases
from services.worker.recovery import Recovery
from services.worker.store import WorkerStore
from services.worker.turnstile_store import TurnstileStore
from shared.backoff import Backoff
from shared.database import Database
from tests.event_model import CAP

Found = TypeVar("Found")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

HOUR = timedelta(hours=1)
NONE = timedelta()


class Dice(random.Random):
    """Always at the upper end, so that a backoff is whole hours."""

    def random(self) -> float:
        return 1.0


BACKOFF = Backoff(HOUR, 2 * HOUR, Dice())


class Settled(Leases):
    """Those of a worker that has long been there."""

    unsettled = False


class Services:
    """What the services' own logins may do, and what the owner sees, on a loop that runs while it is asked."""

    def __init__(self, runner: asyncio.Runner, owner: Connection, worker: Database, scheduler: Database) -> None:
        self._runner = runner
        self.owner = owner
        self._worker = worker
        self.worker = WorkerStore(worker)
        self.turnstile = TurnstileStore(worker)
        # The test's server is younger than a lease of an hour.
        self.recovery = Recovery(
            self.worker,
            Settled(self.worker, lease=HOUR, held=list, on_lost=lambda _: None),
            lease=NONE,
            backoff=BACKOFF,
            on_end=lambda: None,
            on_retry=lambda *_: None,
        )
        self.scheduler = AcceptStore(scheduler)
        self.rescheduling = Rescheduling(self.scheduler, on_due=lambda _: None, soon=NONE)
        self.redriving = Redriving(self.scheduler, max_attempts=CAP, on_due=lambda _: None)

    def load_dice(self) -> None:
        """Which probe is chosen is left to chance, and what is found has to be found again."""
        self.run(self._worker.fetch("SELECT setseed(0)"))

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        return self._runner.run(work)
