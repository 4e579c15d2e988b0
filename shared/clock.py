"""How long something took on this machine. What orders or expires work is the database's time, never this."""

import time

# Goes on while the machine sleeps, where the system has such a clock: a lease does, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def tick() -> float:
    """Seconds, comparable with one another only."""
    return time.clock_gettime(_CLOCK)
