"""The worker process: `python -m services.worker`."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

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
from services.worker.store import Store, WorkerStore
from services.worker.totals import Totals
from services.worker.turnstile_store import TurnstileStore
from services.worker.worker import Worker
from shared.backoff import Backoff
from shared.batching import GroupCommit
from shared.listener import EVENTS_TOPIC, LANES_TOPIC, Listener, Notifier, lane_topic
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
    store = WorkerStore(database)
    lease = timedelta(seconds=settings.lease)
    backoff = Backoff(timedelta(seconds=settings.retry_base), timedelta(seconds=settings.retry_cap))
    flights = asyncio.Semaphore(FLIGHTS)
    notifier = await enter(Notifier(SharedStore(database)))

    def tell_end() -> None:
        notifier.tell(EVENTS_TOPIC)

    def tell_retry(channel: str, retry: Later) -> None:
        if retry.delay.total_seconds() <= settings.poll_interval:
            notifier.tell(lane_topic(channel))

    async def fence(claims: Sequence[Claim]) -> list[Fence]:
        return await fences(store, claims, await store.start_attempts(claims, lease))

    recording = await enter(Recording(store, flights=flights, on_end=tell_end, on_retry=tell_retry))
    starts = await enter(
        GroupCommit[Claim, Fence](fence, flights=flights, key=lambda claim: claim.notification_id, name="start")
    )
    turnstile = TurnstileStore(database)

    def expect_gate(channel: str, span: timedelta) -> None:
        gates[channel].expect(span)

    admission = await enter(Admission(turnstile, lease=lease, on_wait=expect_gate))
    worker_id = process.id
    structlog.contextvars.bind_contextvars(worker_id=str(worker_id))
    suspects, secret = SuspectSlot(), settings.secret()
    shared = {channel: _shared_lane(channel, settings, provider) for channel, provider in providers.items()}
    gates = {
        channel: Gates(
            turnstile,
            shared[channel],
            poll_interval=settings.poll_interval,
            on_open=lambda channel: notifier.tell(lane_topic(channel)),
        )
        for channel in providers
    }
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
            worker_id=worker_id,
            backoff=backoff,
            suspects=suspects,
            listening=lambda: listener.connected,
            address_hash=lambda claim: pseudonym(secret, claim.tenant_id, claim.channel, claim.address),
        )
        for channel, provider in providers.items()
    }
    worker = Worker(worker_id, lanes, shutdown_timeout=settings.shutdown_timeout)
    look = process.stack.enter_context
    look(metrics.IN_FLIGHT.looked_at(lambda: {(channel,): lane.in_flight for channel, lane in lanes.items()}))
    look(metrics.CONCURRENCY.looked_at(lambda: {(channel,): lane.concurrency for channel, lane in lanes.items()}))
    # A connection of its own: a renewal must not wait for records that wait for the database.
    renewals = Store(await process.open_database(size=1))

    def tell_news(channel: str) -> None:
        lanes[channel].wake()
        gates[channel].wake()

    heartbeat = Heartbeat(
        renewals,
        shared,
        worker_id=worker_id,
        phase=lambda: worker.phase,
        # A lane that this worker cannot serve is served by nobody, as far as it is concerned.
        loads=lambda: [lane.load for channel, lane in lanes.items() if shared[channel].fit],
        first_probe=timedelta(seconds=settings.probe_base),
        longest_probe=timedelta(seconds=settings.probe_cap),
        on_news=tell_news,
        on_change=lambda: notifier.tell(LANES_TOPIC),
    )
    worker.on_phase = heartbeat.wake
    topics = {lane_topic(channel): lane.wake for channel, lane in lanes.items()}
    listener = await enter(
        Listener(settings.listen_url(), name="notifyqueue worker listener", on={**topics, LANES_TOPIC: heartbeat.wake})
    )
    health = await process.serve(database, [rpc.service(worker)], untimed=rpc.UNTIMED)
    leases = await enter(Leases(renewals, lease=lease, held=worker.renewable, on_lost=worker.lose))
    await enter(Recovery(store, leases, lease=lease, backoff=backoff, on_end=tell_end, on_retry=tell_retry))
    retaining = RetentionStore(database)
    await enter(Totals(retaining))
    await enter(_retention(retaining, settings))
    await enter(heartbeat)
    for gate in gates.values():
        await enter(gate)
    await enter(worker)
    await process.become_ready(database, health, draining=lambda: worker.draining)
    return worker


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
