"""How fast each lane goes: what two looks at the workers' totals, or at what waits, differ by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from notifyqueue.v1.notification_pb2 import Notification
from notifyqueue.v1.scheduler_pb2 import LaneStats, LiveWorker

WorkerId: TypeAlias = str
ChannelNumber: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Rate:
    """A second."""

    sent: float = 0.0
    unsent: float = 0.0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.sent + other.sent, self.unsent + other.unsent)


class _Seen(NamedTuple):
    at: float  # the worker's last sign of life, by the database's clock, which is when it counted
    sent: int
    unsent: int
    rate: Rate | None


class Rates:
    """Keeps what was seen of each worker. One that is seen for the first time has no rate yet."""

    def __init__(self) -> None:
        self._seen: dict[tuple[WorkerId, ChannelNumber], _Seen] = {}

    def look(self, workers: Iterable[LiveWorker]) -> Mapping[ChannelNumber, Rate]:
        """The rate of each lane, over all workers that have one."""
        self._seen = {
            (worker.worker_id, lane.channel): self._next(
                (worker.worker_id, lane.channel),
                worker.heartbeat_time.ToNanoseconds() / 1e9,
                lane.sent,
                lane.unsent,
            )
            for worker in workers
            for lane in worker.lanes
        }
        rates: dict[ChannelNumber, Rate] = {}
        for (_, channel), seen in self._seen.items():
            if seen.rate is not None:
                rates[channel] = rates.get(channel, Rate()) + seen.rate
        return rates

    def _next(self, key: tuple[WorkerId, ChannelNumber], at: float, sent: int, unsent: int) -> _Seen:
        before = self._seen.get(key)
        if before is None:
            return _Seen(at, sent, unsent, None)
        if at <= before.at:  # between two signs of life nothing is known
            return before
        passed = at - before.at
        return _Seen(at, sent, unsent, Rate((sent - before.sent) / passed, (unsent - before.unsent) / passed))


class Backlogs:
    """By how much a second what is not yet ended grows, or shrinks where it is negative."""

    def __init__(self) -> None:
        self._seen: Mapping[ChannelNumber, int] = {}
        self._at = 0.0

    def look(self, lanes: Iterable[LaneStats], at: float) -> Mapping[ChannelNumber, float]:
        """`at` is in seconds, by any clock. Of a lane that was not counted to its end, both times, nothing is known."""
        before, passed = self._seen, at - self._at
        self._seen, self._at = {lane.channel: size for lane in lanes if (size := _open(lane)) is not None}, at
        return {
            channel: (size - before[channel]) / passed
            for channel, size in self._seen.items()
            if channel in before and passed > 0
        }


class Ends:
    """How many a second end as SENT, and how many otherwise: what a tenant sees, who is not told of the workers."""

    def __init__(self) -> None:
        self._seen: Mapping[ChannelNumber, tuple[int, int]] = {}
        self._at = 0.0

    def look(self, lanes: Iterable[LaneStats], at: float) -> Mapping[ChannelNumber, Rate]:
        """As of Backlogs."""
        before, passed = self._seen, at - self._at
        self._seen, self._at = {lane.channel: ends for lane in lanes if (ends := _ended(lane)) is not None}, at
        return {
            channel: Rate((sent - before[channel][0]) / passed, (others - before[channel][1]) / passed)
            for channel, (sent, others) in self._seen.items()
            if channel in before and passed > 0
        }


def _ended(lane: LaneStats) -> tuple[int, int] | None:
    if any(total.count.at_least for total in lane.totals):
        return None
    counts = {total.status: total.count.count for total in lane.totals}
    sent = counts.get(Notification.STATUS_SENT, 0)
    return sent, sum(counts.values()) - sent


def _open(lane: LaneStats) -> int | None:
    counts = (lane.due, lane.scheduled, lane.waiting, lane.processing)
    return None if any(each.at_least for each in counts) else sum(each.count for each in counts)
