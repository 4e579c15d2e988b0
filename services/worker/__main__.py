"""The worker process: `python -m services.worker`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

if __name__ == "__main__":
    from shared import starting

    starting.begin()  # until `run`

import structlog

from services.worker import rpc
from services.worker.admission import Admission
from services.worker.claim import Claim
from services.worker.gates import Gates
from services.worker.heartbeat import Heartbeat
from services.worker.lane import Lane, LaneSettings, SuspectSlot
from services.worker.leases import Leases
from services.worker.outcome import Later
from services.worker.providers import Provider
from services.worker.providers.catalogue import choose_providers
from services.worker.providers.unconfigured import Unconfigured
from services.worker.recording import Fence, Recording, fences
from services.worker.recovery import Recovery
from services.worker.retention import Retention
from services.worker.retention_store import RetentionStore
from services.worker.settings import Settings
from services.worker.shared_lane import SharedLane
from services.worker.store import LaneLoad, Store, WorkerStore
from services.worker.totals import Totals
from services.worker.turnstile_store import TurnstileStore
from services.worker.worker import Worker
from shared.backoff import Backoff
from shared.batching import GroupCommit
from shared.database import Database
from shared.listener import LANES_TOPIC, Listener, Notifier, lane_topic
from shared.process import Process, run
from shared.pseudonym import pseudonym
from shared.settings import PREFIX
from shared.store import Store as SharedStore
from shared.telemetry import metrics

log = structlog.get_logger()

FLIGHTS = 4


async def start(process: Process, settings: Settings) -> None:
    providers = {}
    for channel, provider in choose_providers(settings).items():
        providers[channel] = await process.stack.enter_async_context(provider)
    await compose(process, settings, providers)


async def compose(process: Process, settings: Settings, providers: Mapping[str, Provider]) -> Worker:
    """Everything a worker is made of, in the order of starting; its reverse is the drain."""
    enter = process.stack.enter_async_context
    database = await process.open_database()
    notifier = await enter(Notifier(SharedStore(database)))
    structlog.contextvars.bind_contextvars(worker_id=str(process.id))
    lanes = await _lanes(process, settings, providers, database, notifier, listening=lambda: listener.connected)
    worker = Worker(process.id, lanes.lanes, shutdown_timeout=settings.shutdown_timeout)
    _measure(process, lanes.lanes)
    # A connection of its own: a renewal must not wait for records that wait for the database.
    renewals = Store(await process.open_database(size=1))
    heartbeat = _heartbeat(renewals, worker, lanes, settings, notifier)
    topics = {lane_topic(channel): lane.wake for channel, lane in lanes.lanes.items()}
    listener = await enter(
        Listener(settings.listen_url(), name="notifyqueue worker listener", on={**topics, LANES_TOPIC: heartbeat.wake})
    )
    health = await process.serve(database, [rpc.service(worker)], untimed=rpc.UNTIMED)
    lease = timedelta(seconds=settings.lease)
    leases = await enter(Leases(renewals, lease=lease, held=worker.renewable, on_lost=worker.lose))
    await enter(
        Recovery(
            WorkerStore(database),
            leases,
            lease=lease,
            backoff=_backoff(settings),
            on_end=notifier.tell_end,
            on_retry=_retry_teller(notifier, settings),
        )
    )
    retaining = RetentionStore(database)
    await enter(Totals(retaining))
    await enter(_retention(retaining, settings))
    await enter(heartbeat)
    for gate in lanes.gates.values():
        await enter(gate)
    await enter(worker)
    await process.become_ready(database, health, draining=lambda: worker.draining)
    return worker


@dataclass(frozen=True, slots=True)
class Lanes:
    """By channel: what all workers know of a lane, its gates, and itself."""

    shared: Mapping[str, SharedLane]
    gates: Mapping[str, Gates]
    lanes: Mapping[str, Lane]

    def tell_news(self, channel: str) -> None:
        self.lanes[channel].wake()
        self.gates[channel].wake()

    def loads(self) -> Sequence[LaneLoad]:
        """A lane that this worker cannot serve is served by nobody, as far as it is concerned."""
        return [lane.load for channel, lane in self.lanes.items() if self.shared[channel].fit]


async def _lanes(
    process: Process,
    settings: Settings,
    providers: Mapping[str, Provider],
    database: Database,
    notifier: Notifier,
    *,
    listening: Callable[[], bool],
) -> Lanes:
    """The lanes, and what they write by, which starts before them."""
    store, turnstile = WorkerStore(database), TurnstileStore(database)
    shared = {channel: _shared_lane(channel, settings, provider) for channel, provider in providers.items()}
    gates = {
        channel: Gates(turnstile, lane, poll_interval=settings.poll_interval, on_open=notifier.tell_due)
        for channel, lane in shared.items()
    }
    recording, starts = await _records(process, settings, store, notifier)
    admission = await process.stack.enter_async_context(
        Admission(
            turnstile,
            lease=timedelta(seconds=settings.lease),
            on_wait=lambda channel, span: gates[channel].expect(span),
        )
    )
    suspects, secret = SuspectSlot(), settings.secret()
    lanes = {
        channel: Lane(
            _lane_settings(channel, settings),
            store,
            provider,
            recording,
            starts,
            admission,
            gates[channel],
            shared[channel],
            worker_id=process.id,
            backoff=_backoff(settings),
            suspects=suspects,
            listening=listening,
            address_hash=lambda claim: pseudonym(secret, claim.tenant_id, claim.channel, claim.address),
        )
        for channel, provider in providers.items()
    }
    return Lanes(shared, gates, lanes)


async def _records(
    process: Process, settings: Settings, store: WorkerStore, notifier: Notifier
) -> tuple[Recording, GroupCommit[Claim, Fence]]:
    """How attempts end, and the start fence; they share their flights."""
    enter = process.stack.enter_async_context
    flights, lease = asyncio.Semaphore(FLIGHTS), timedelta(seconds=settings.lease)

    async def fence(claims: Sequence[Claim]) -> list[Fence]:
        return await fences(store, claims, await store.start_attempts(claims, lease))

    recording = await enter(
        Recording(store, flights=flights, on_end=notifier.tell_end, on_retry=_retry_teller(notifier, settings))
    )
    starts = await enter(
        GroupCommit[Claim, Fence](fence, flights=flights, key=lambda claim: claim.notification_id, name="start")
    )
    return recording, starts


def _measure(process: Process, lanes: Mapping[str, Lane]) -> None:
    look = process.stack.enter_context
    look(metrics.IN_FLIGHT.looked_at(lambda: {(channel,): lane.in_flight for channel, lane in lanes.items()}))
    look(metrics.CONCURRENCY.looked_at(lambda: {(channel,): lane.concurrency for channel, lane in lanes.items()}))


def _heartbeat(store: Store, worker: Worker, lanes: Lanes, settings: Settings, notifier: Notifier) -> Heartbeat:
    heartbeat = Heartbeat(
        store,
        lanes.shared,
        worker_id=worker.worker_id,
        phase=lambda: worker.phase,
        loads=lanes.loads,
        first_probe=timedelta(seconds=settings.probe_base),
        longest_probe=timedelta(seconds=settings.probe_cap),
        on_news=lanes.tell_news,
        on_change=notifier.tell_lanes,
    )
    worker.on_phase = heartbeat.wake
    return heartbeat


def _retry_teller(notifier: Notifier, settings: Settings) -> Callable[[str, Later], None]:
    """Tells of a retry that comes before the lanes would look by themselves."""

    def tell(channel: str, retry: Later) -> None:
        if retry.delay.total_seconds() <= settings.poll_interval:
            notifier.tell_due(channel)

    return tell


def _backoff(settings: Settings) -> Backoff:
    return Backoff(timedelta(seconds=settings.retry_base), timedelta(seconds=settings.retry_cap))


def _shared_lane(channel: str, settings: Settings, provider: Provider) -> SharedLane:
    return SharedLane(
        channel,
        settings.concurrency(channel),
        first_rest=settings.probe_base,
        longest_rest=settings.probe_cap,
        unfit=_unfit(channel, provider),
    )


def _unfit(channel: str, provider: Provider) -> str | None:
    if not isinstance(provider, Unconfigured):
        return None
    missing = ", ".join(f"{PREFIX}{setting}" for setting in provider.settings)
    log.error("lane.unconfigured", channel=channel, provider=provider.name, missing=missing)
    return provider.cause


def _retention(store: RetentionStore, settings: Settings) -> Retention:
    return Retention(
        store,
        retention=timedelta(seconds=settings.retention),
        content_retention=timedelta(seconds=settings.content_retention),
    )


def _lane_settings(channel: str, settings: Settings) -> LaneSettings:
    return LaneSettings(
        channel=channel,
        concurrency=settings.concurrency(channel),
        deadline=settings.attempt_deadline(channel),
        lease=timedelta(seconds=settings.lease),
        poll_interval=settings.poll_interval,
        aging=timedelta(seconds=settings.priority_aging),
    )


if __name__ == "__main__":
    run("worker", Settings, start)
