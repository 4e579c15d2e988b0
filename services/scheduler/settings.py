"""The scheduler's settings."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from shared.doctor import Bounds
from shared.settings import DAY, PositiveSeconds, ProcessSettings, Seconds


class Settings(ProcessSettings):
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Attempts that a notification may have."""
    poll_interval: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """How often workers look by themselves: only what is due sooner is worth a wake-up."""
    max_watchers: Annotated[int, Field(ge=1, le=10_000)] = 2_000
    """Open WatchNotification streams, apart from MAX_CALLS; more are refused as SERVER_OVERLOADED. With AUTH=keys one
    tenant has at most half of them, rounded up, and more of its own are refused as TENANT_LIMIT_EXCEEDED."""
    watch_timeout: PositiveSeconds = 1_800.0
    """No WatchNotification stream is open longer; its client calls again."""
    lease: PositiveSeconds = 60.0
    """As the workers have it. What metrics say of the doctor's findings is judged by it, and by the next two."""
    retention: Seconds = 30 * DAY
    """As the workers have it."""
    content_retention: Seconds = 7 * DAY
    """As the workers have it."""

    def bounds(self) -> Bounds:
        """From when on something is a finding."""
        return Bounds(
            lease=timedelta(seconds=self.lease),
            retention=timedelta(seconds=self.retention),
            content_retention=timedelta(seconds=self.content_retention),
        )
