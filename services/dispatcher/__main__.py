"""The dispatcher process: `python -m services.dispatcher`."""

import asyncio

if __name__ == "__main__":
    from shared import starting

    starting.begin()  # until `run`

from services.dispatcher import rpc
from services.dispatcher.claims import Claims
from services.dispatcher.client import Client
from services.dispatcher.configured import ConfiguredEndpoint
from services.dispatcher.deliveries import Deliveries, Limits
from services.dispatcher.dispatch import Dispatch
from services.dispatcher.endpoints import Endpoints
from services.dispatcher.keys import Keys
from services.dispatcher.settings import Settings
from services.dispatcher.store import Store
from shared.batching import GroupCommit
from shared.listener import ENDPOINTS_TOPIC, EVENTS_TOPIC, UNHEARD_POLL, Listener, Notifier
from shared.paging import Pages
from shared.process import Process, run
from shared.store import Store as SharedStore

FLIGHTS = 4


async def start(process: Process, settings: Settings) -> None:
    enter = process.stack.enter_async_context
    database = await process.open_database()
    store, keys, egress = Store(database), Keys(settings.secret()), settings.egress()
    notifier = await enter(Notifier(SharedStore(database)))
    recording = await enter(
        GroupCommit(
            store.record_results,
            flights=asyncio.Semaphore(FLIGHTS),
            key=lambda result: result.delivery.id,
            name="record_results",
        )
    )
    client = await enter(Client(egress, timeout=settings.webhook_timeout))

    def poll_interval() -> float:
        return settings.poll_interval if listener.connected else min(settings.poll_interval, UNHEARD_POLL)

    def tell_all() -> None:
        notifier.tell(ENDPOINTS_TOPIC)

    claims = Claims(
        database,
        cap=settings.webhook_endpoint_concurrency,
        lease=settings.lease,
        max_attempts=settings.webhook_max_attempts,
    )
    limits = Limits(settings.webhook_concurrency, settings.webhook_max_attempts, settings.shutdown_timeout)
    deliveries = Deliveries(claims, client, keys, recording, limits, poll_interval=poll_interval)
    dispatch = Dispatch(
        store,
        deliveries,
        dispatcher_id=process.id,
        concurrency=limits.concurrency,
        poll_interval=poll_interval,
        on_many=tell_all,
    )
    listener = Listener(
        settings.listen_url(),
        name=f"notifyqueue {process.name}",
        on={EVENTS_TOPIC: dispatch.events_arrived, ENDPOINTS_TOPIC: dispatch.endpoints_changed},
    )
    endpoints = Endpoints(store, keys, egress, most=settings.webhook_max_endpoints, on_deleted=tell_all)
    pages = Pages(settings.secret(), "endpoints")
    servicer = rpc.WebhookDispatcher(endpoints, pages, dispatch, drain_timeout=settings.shutdown_timeout)
    health = await process.serve(database, [rpc.service(servicer)], untimed=rpc.UNTIMED)
    if configured := settings.configured_endpoint():
        url, key = configured
        await enter(ConfiguredEndpoint(store, keys, url=url, key=key).until_done())
    await enter(listener)
    # After the server, so that whoever asks during the drain is answered.
    await enter(dispatch)
    await process.become_ready(database, health, draining=lambda: dispatch.draining)


if __name__ == "__main__":
    run("dispatcher", Settings, start)
