"""What the queue's metrics are read from: one statement every 15 seconds, and the doctor's checks once a minute.

Every scheduler reads them that exports metrics, and all say the same: whoever has several takes the largest. So nobody
has to be elected, and no gauge is missing because the one that was has gone. Where nobody exports, nothing is read.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import structlog

from shared.batching import Contention
from shared.database import DatabaseBug, Executor
from shared.doctor import CHECKS, UNMADE, Bounds, Finding, look_all
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.telemetry import metrics
from shared.telemetry.metrics import Attributes, Gauge

log = structlog.get_logger()

INTERVAL = 15.0
DOCTOR_INTERVAL = 60.0
FINDINGS_LAST = 180.0

GAUGES: Mapping[str, Gauge] = {
    "depth": metrics.DEPTH,
    "lag": metrics.LAG,
    "suspects": metrics.SUSPECTS,
    "stranded": metrics.STRANDED,
    "serving": metrics.SERVING,
    "paused": metrics.PAUSED,
    "breaker": metrics.BREAKER,
    "held": metrics.HELD,
    "backlog": metrics.BACKLOG,
    "webhook_lag": metrics.WEBHOOK_LAG,
    "disabled": metrics.DISABLED,
    "snapshot": metrics.SNAPSHOT,
}
"""By the names of sql/read_gauges.sql."""


class Store(Protocol):
    async def read_gauges(self) -> Sequence[tuple[str, Attributes, float]]: ...


class Gauges:
    def __init__(self, store: Store, executor: Executor, bounds: Bounds) -> None:
        """The doctor's checks run on `executor`, by these `bounds`."""
        self._store = store
        self._executor = executor
        self._bounds = bounds
        self._reads = self._looks = True
        self._loops = (Loop("gauges", self.read), Loop("doctor", self.look))

    async def __aenter__(self) -> Self:
        for loop in self._loops:
            await loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for loop in self._loops:
            await loop.__aexit__()

    async def read(self) -> float:
        """What was read before stands until it is stale. A statement that takes too long is not helped by another one
        at once, so that waits as long as any.
        """
        try:
            rows = await self._store.read_gauges()
        except (DatabaseUnavailable, Contention, DatabaseBug) as error:
            if self._reads:
                log.warning("gauges.unread", exc_info=error)
            self._reads = False
            return INTERVAL
        self._reads = True
        found: dict[str, dict[Attributes, float]] = defaultdict(dict)
        for gauge, attributes, value in rows:
            found[gauge][attributes] = value
        for name, values in found.items():
            GAUGES[name].show(values)
        return INTERVAL

    async def look(self) -> float:
        """Where the database is away nothing is found: whoever is paged for that needs no page for each check."""
        try:
            found = await look_all(self._executor, self._bounds)
        except DatabaseUnavailable as error:
            if self._looks:
                log.warning("findings.unread", exc_info=error)
            self._looks = False
            return DOCTOR_INTERVAL
        self._looks = True
        metrics.FINDINGS.show(counted(found), lasts=FINDINGS_LAST)
        return DOCTOR_INTERVAL


def counted(findings: Sequence[Finding]) -> Mapping[Attributes, float]:
    """How many of each kind, also of those of which there is none."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.check.name] += finding.count
    return {(check.name, str(check.severity)): counts[check.name] for check in (*CHECKS, UNMADE)}
