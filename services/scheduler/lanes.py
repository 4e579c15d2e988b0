"""Lanes, for those who run them all: paused and resumed by a person, and how they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pause:
    paused_at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    opened_at: datetime
    cause: str
    probe_at: datetime


@dataclass(frozen=True, slots=True)
class Lane:
    channel: str
    pause: Pause | None
    open_breaker: OpenBreaker | None
    held_until: datetime | None
    """While its provider wants to be left alone."""


@dataclass(frozen=True, slots=True)
class LiveLane:
    channel: str
    concurrency: int
    in_flight: int
    sent: int
    unsent: int


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker whose last heartbeat is fresh."""

    id: UUID
    phase: str
    started_at: datetime
    heartbeat_at: datetime
    lanes: Sequence[LiveLane]


class Store(Protocol):
    async def pause_lane(self, channel: str, actor: str, reason: str) -> None: ...
    async def resume_lane(self, channel: str, actor: str, reason: str) -> None: ...
    async def read_lanes(self) -> Sequence[Lane]: ...


async def pause(store: Store, channel: str, *, actor: str, reason: str) -> Lane:
    """The paused lane; whoever paused it first is kept."""
    await store.pause_lane(channel, actor, reason)
    log.info("lane.paused", channel=channel, actor=actor)
    return await _read(store, channel)


async def resume(store: Store, channel: str, *, actor: str, reason: str) -> Lane:
    await store.resume_lane(channel, actor, reason)
    log.info("lane.resumed", channel=channel, actor=actor)
    return await _read(store, channel)


async def _read(store: Store, channel: str) -> Lane:
    return next(lane for lane in await store.read_lanes() if lane.channel == channel)
