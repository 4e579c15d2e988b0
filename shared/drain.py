"""How a process drains: the phases it passes, and how long an operator may have it wait."""

from enum import StrEnum
from typing import Literal, Protocol

from google.protobuf.duration_pb2 import Duration

from shared.errors import RequestInvalid, Violation

MAX_TIMEOUT = 3600.0


class Phase(StrEnum):
    RUNNING = "RUNNING"
    """It takes work."""
    DRAINING = "DRAINING"
    """It takes nothing new and finishes what runs."""
    DRAINED = "DRAINED"
    """It holds nothing."""


class DrainRequest(Protocol):
    """A request with a duration `timeout`, which need not be set."""

    @property
    def timeout(self) -> Duration: ...
    def HasField(self, name: Literal["timeout"], /) -> bool: ...  # noqa: N802


def drain_timeout(request: DrainRequest, default: float) -> float:
    """Seconds to wait for what runs. Raises RequestInvalid."""
    if not request.HasField("timeout"):
        return default
    seconds = request.timeout.ToNanoseconds() / 1e9
    if not 0 <= seconds <= MAX_TIMEOUT:
        raise RequestInvalid([Violation("timeout", "must be from 0 to 1 hour")])
    return seconds
