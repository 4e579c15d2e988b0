"""How fast each lane goes: what two looks at the workers' totals differ by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from notifyqueue.v1.scheduler_pb2 import LiveWorker

WorkerId: TypeAlias = str
ChannelNumber: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Rate:
    """Attempts a second."""

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
