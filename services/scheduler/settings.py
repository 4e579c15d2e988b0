"""The scheduler's settings."""

from typing import Annotated

from pydantic import Field

from shared.settings import PositiveSeconds, ProcessSettings


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
