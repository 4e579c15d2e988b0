"""What is measured, each with what it means: docs/metrics.md is written from here.

The SDK's instruments take tens of microseconds for each value, which is more than a notification costs. So values are
kept here, in plain numbers, and the SDK asks for them when it exports (shared/telemetry/readers.py). Nothing is kept
unless somebody listens.

Attributes are from lists that are known: no id, no address, no tenant. What a provider or an endpoint answers is cut
to what its table lists, before it comes here.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, TypeAlias

from shared.clock import tick

Attributes: TypeAlias = tuple[str, ...]
Values: TypeAlias = Mapping[Attributes, float]

# As the conventions for RPC advise; and with an hour on top, for what waits in a queue.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

MOST = 500
"""Sets of attributes that a metric keeps apart; what comes later is counted under OTHER."""
OTHER = "other"
STALE = 60.0
"""Seconds after which what was read of the database is not told any more: silence is better than an old truth. What is
read more rarely lasts longer, or each scrape before the next look would find nothing, and an alert begin anew.
"""


@dataclass(eq=False)
class Metric(ABC):
    name: str
    unit: str
    """As UCUM writes it; what is counted in braces."""
    means: str
    attributes: Attributes = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Attributes that the conventions ask for, and that are always the same."""

    kept: ClassVar[bool] = False
    """Whether anybody listens."""

    def labels(self, attributes: Attributes) -> Mapping[str, str]:
        """What is empty does not apply."""
        found = {**self.fixed, **dict(zip(self.attributes, attributes, strict=True))}
        return {name: value for name, value in found.items() if value}

    def __post_init__(self) -> None:
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forgets what was kept."""


class Counter(Metric):
    def clear(self) -> None:
        self._values: dict[Attributes, float] = {}

    def add(self, amount: float, *attributes: str) -> None:
        if Metric.kept:
            try:
                self._values[attributes] += amount
            except KeyError:
                key = attributes if len(self._values) < MOST else (OTHER,) * len(attributes)
                self._values[key] = self._values.get(key, 0) + amount

    def values(self) -> Values:
        return dict(self._values)


class Gauge(Metric):
    """What is: either shown again and again by whoever reads it, or looked at when it is asked for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._looks: list[Callable[[], Values]] = []

    def clear(self) -> None:
        self._shown: Values = {}
        self._until = 0.0

    def show(self, values: Values, *, lasts: float = STALE) -> None:
        """All there is, in place of what was."""
        self._until = tick() + lasts
        self._shown = values

    @contextmanager
    def looked_at(self, look: Callable[[], Values]) -> Iterator[None]:
        """Asks `look`, which must take no time and may be called by any thread."""
        self._looks.append(look)
        try:
            yield
        finally:
            self._looks.remove(look)

    def values(self) -> Values:
        shown = dict(self._shown) if tick() < self._until else {}
        for look in list(self._looks):
            shown.update(look())
        return shown


@dataclass(eq=False)
class Histogram(Metric):
    bounds: Sequence[float] = SECONDS

    def clear(self) -> None:
        self._values: dict[Attributes, list[float]] = {}

    def record(self, value: float, *attributes: str) -> None:
        if Metric.kept:
            cell = self._values.get(attributes) or self._cell(attributes)
            cell[bisect_left(self.bounds, value)] += 1
            cell[-1] += value

    def _cell(self, attributes: Attributes) -> list[float]:
        key = attributes if len(self._values) < MOST else (OTHER,) * len(attributes)
        return self._values.setdefault(key, [0] * (len(self.bounds) + 2))

    def values(self) -> Mapping[Attributes, Sequence[float]]:
        """A count for each bucket, of which the last has no bound; then the sum of all values."""
        return {key: list(cell) for key, cell in list(self._values.items())}


def listen(*, on: bool) -> None:
    """Whether values are kept from now on. What was kept is forgotten: whoever begins to listen counts from zero."""
    Metric.kept = on
    for metric in METRICS:
        metric.clear()


# --- the queue, as the scheduler reads it every 15 seconds

DEPTH = Gauge(
    "notifyqueue.queue.depth",
    "{notification}",
    "What is to be sent: `due` now, or `waiting` at a recipient's limit. Exact up to 1,000 of each, and then "
    "1,000, which says at least. Crash suspects are counted apart.",
    ("channel", "priority", "state"),
)
LAG = Gauge(
    "notifyqueue.queue.lag",
    "s",
    "For how long what is due first has been due; 0 where nothing is.",
    ("channel", "priority"),
)
SUSPECTS = Gauge(
    "notifyqueue.queue.suspects",
    "{notification}",
    "Crash suspects that are to be sent, up to 1,000: two workers were lost while they held each.",
    ("channel",),
)
STRANDED = Gauge(
    "notifyqueue.lane.stranded",
    "{lane}",
    "1 where something is due and no worker that lives serves the lane.",
    ("channel",),
)
SERVING = Gauge(
    "notifyqueue.lane.workers",
    "{worker}",
    "Workers that live (a heartbeat within 15 s), take work, and serve the lane.",
    ("channel",),
)
PAUSED = Gauge("notifyqueue.lane.paused", "{lane}", "1 while a person's pause holds the lane.", ("channel",))
BREAKER = Gauge("notifyqueue.lane.breaker_open", "{lane}", "1 while the lane's breaker is open.", ("channel",))
HELD = Gauge(
    "notifyqueue.lane.held", "s", "For how long the lane still rests, as its provider has asked.", ("channel",)
)
BACKLOG = Gauge(
    "notifyqueue.webhook.backlog",
    "{webhook}",
    "Webhooks that have not arrived: events that are `unassigned` to their endpoints, deliveries that are `pending`; "
    "up to 1,000 of each.",
    ("stage",),
)
WEBHOOK_LAG = Gauge(
    "notifyqueue.webhook.lag",
    "s",
    "For how long the first of them has been due; of deliveries, of endpoints that take any now.",
    ("stage",),
)
DISABLED = Gauge(
    "notifyqueue.webhook.disabled_endpoints",
    "{endpoint}",
    "Endpoints that have answered 410 and get nothing since, up to 1,000; not those that were deleted.",
)
SNAPSHOT = Gauge(
    "notifyqueue.database.snapshot_age",
    "{transaction}",
    "How many transactions ago the oldest snapshot was taken that anybody holds: a session, a prepared transaction, a "
    "replication slot. Nothing that ended since can be vacuumed.",
)
FINDINGS = Gauge(
    "notifyqueue.doctor.findings",
    "{finding}",
    "How many the doctor has found of each kind, 0 where none; looked for once a minute. docs/operations.md says what "
    "each means. `unmade`: looks that failed, but where the database is away for all of them: then nothing is told.",
    ("finding", "severity"),
)

# --- delivering, by each worker

CLAIMED = Counter(
    "messaging.client.consumed.messages",
    "{message}",
    "Notifications that were claimed.",
    ("messaging.destination.name",),
    {"messaging.system": "notifyqueue", "messaging.operation.name": "claim"},
)
CLAIM_TIME = Histogram("notifyqueue.claim.duration", "s", "What one claim takes, of however many.", ("channel",))
LATENCY = Histogram(
    "notifyqueue.delivery.latency",
    "s",
    "How late an attempt begins its call of the provider. `since` is `accepted` where it was due when it was "
    "accepted, and `due` where it was for later, was retried or redriven. Over both it is due to provider.",
    ("channel", "since"),
    bounds=WAITS,
)
PROVIDER_TIME = Histogram(
    "notifyqueue.provider.duration", "s", "What a call of the provider takes.", ("provider", "answer")
)
OUTCOMES = Counter(
    "notifyqueue.provider.outcomes",
    "{attempt}",
    "What providers answer: what it means, and the code where their table lists it, or else `other`.",
    ("channel", "provider", "answer", "code"),
)
RETRIES = Counter(
    "notifyqueue.delivery.retries",
    "{attempt}",
    "Attempts after which there is to be another: FAILED, or UNKNOWN where it may have been delivered.",
    ("channel", "attempt"),
)
UNSENT = Counter(
    "notifyqueue.delivery.unsent",
    "{notification}",
    "Ends that are no SENT, by their reason; EXPIRED has none.",
    ("channel", "reason"),
)
RELEASED = Counter(
    "notifyqueue.delivery.released",
    "{notification}",
    "What went back without an attempt: a drain, a doubt.",
    ("channel",),
)
WAITING = Counter(
    "notifyqueue.delivery.waits", "{notification}", "What was put to wait at its recipient's limit.", ("channel",)
)
LOST = Counter(
    "notifyqueue.claims.lost",
    "{claim}",
    "Claims that this worker held and that were not its own any more.",
    ("channel",),
)
RECOVERED = Counter(
    "notifyqueue.claims.recovered",
    "{claim}",
    "Claims of others whose lease has passed, decided about here.",
    ("channel",),
)
BREAKER_CHANGES = Counter(
    "notifyqueue.lane.breaker_changes", "{change}", "Breakers that this worker opened or closed.", ("channel", "to")
)
IN_FLIGHT = Gauge("notifyqueue.worker.in_flight", "{notification}", "What a worker holds.", ("channel",))
CONCURRENCY = Gauge("notifyqueue.worker.concurrency", "{notification}", "What it may hold at its pace.", ("channel",))
DRAINING = Gauge("notifyqueue.process.draining", "{process}", "1 while a worker or a dispatcher drains, or is drained.")

# --- reporting, by each dispatcher

WEBHOOKS = Counter(
    "notifyqueue.webhook.attempts",
    "{attempt}",
    "Posts of webhooks: `delivered`, `retry`, `given_up`, or `claim_lost`; and why, where it was not 2xx.",
    ("result", "error.type"),
)
WEBHOOK_TIME = Histogram("notifyqueue.webhook.duration", "s", "What a post takes.", ("result",))

# --- every process

RPC_TIME = Histogram(
    "rpc.server.call.duration",
    "s",
    "What an RPC takes, streams as a whole. What is the server's fault has an `error.type`; the deadline of a call "
    "that may stay open is none. Health and reflection are not counted, nor are methods that there are not.",
    ("rpc.method", "rpc.status_code", "error.type"),
    {"rpc.system.name": "grpc"},
)
ACCEPTED = Counter(
    "messaging.client.sent.messages",
    "{message}",
    "Notifications that were accepted; no replays.",
    ("messaging.destination.name",),
    {"messaging.system": "notifyqueue", "messaging.operation.name": "send"},
)
GROUP_SIZE = Histogram(
    "notifyqueue.group_commit.size", "{operation}", "Operations that share one statement.", ("group",), bounds=SIZES
)
GROUP_WAIT = Histogram(
    "notifyqueue.group_commit.wait", "s", "How long the first of a group has waited for its departure.", ("group",)
)
GROUP_TIME = Histogram(
    "notifyqueue.group_commit.duration", "s", "From the departure until the group is settled.", ("group",)
)
DROPPED = Counter(
    "notifyqueue.traces.dropped",
    "{span}",
    "Spans that no collector has: `QUEUE_FULL`, `NOT_TAKEN` after the last try, or `UNENCODABLE`.",
    ("reason",),
)

SECTIONS: Mapping[str, Sequence[Counter | Gauge | Histogram]] = {
    "The queue": (
        *(DEPTH, LAG, SUSPECTS, STRANDED, SERVING, PAUSED, BREAKER, HELD, BACKLOG, WEBHOOK_LAG, DISABLED, SNAPSHOT),
        FINDINGS,
    ),
    "Delivering": (
        *(LATENCY, PROVIDER_TIME, OUTCOMES, RETRIES, UNSENT, WAITING, RELEASED, CLAIMED, CLAIM_TIME, LOST, RECOVERED),
        *(BREAKER_CHANGES, IN_FLIGHT, CONCURRENCY),
    ),
    "Reporting": (WEBHOOKS, WEBHOOK_TIME),
    "Processes": (RPC_TIME, ACCEPTED, GROUP_SIZE, GROUP_WAIT, GROUP_TIME, DRAINING, DROPPED),
}
METRICS = tuple(chain.from_iterable(SECTIONS.values()))
