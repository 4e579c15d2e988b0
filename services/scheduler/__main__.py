"""The scheduler process: `python -m services.scheduler`."""

import asyncio
from datetime import timedelta
from functools import partial

from services.scheduler import accept, changes, redrives, rpc, rpc_recipients, rpc_templates
from services.scheduler.accept_store import AcceptStore
from services.scheduler.erasure import Erasure
from services.scheduler.erasure_store import ErasureStore
from services.scheduler.gauges import Gauges
from services.scheduler.recipient_store import RecipientStore
from services.scheduler.renderer import Renderer
from services.scheduler.settings import Settings
from services.scheduler.store import Store
from services.scheduler.subscribers import Subscribers
from services.scheduler.suppressions import Suppressions
from services.scheduler.template_store import TemplateStore
from services.scheduler.templates import Catalogue
from services.scheduler.watch import Hub
from shared.batching import GroupCommit
from shared.layers import Bounds
from shared.listener import EVENTS_TOPIC, LANES_TOPIC, Notifier, lane_topic
from shared.paging import Pages
from shared.process import Process, run
from shared.pseudonym import pseudonym
from shared.store import Store as SharedStore
from shared.telemetry.metrics import Metric

# One that commits and one that gathers. With more, calls that come one by one leave one by one, and a group of one
# costs the database nearly as much as a group of ten: with four, 64 callers were accepted a quarter slower.
FLIGHTS = 2


async def start(process: Process, settings: Settings) -> None:
    database = await process.open_database()
    store = Store(database)
    notifier = await process.stack.enter_async_context(Notifier(SharedStore(database)))
    soon = timedelta(seconds=settings.poll_interval)

    def wake(channel: str) -> None:
        notifier.tell(lane_topic(channel))

    def tell_end() -> None:
        notifier.tell(EVENTS_TOPIC)

    pseudonyms = partial(pseudonym, settings.secret())
    template_store = TemplateStore(database)
    renderer = Renderer(template_store)
    accepting = accept.Accept(
        AcceptStore(database),
        renderer,
        pseudonyms=pseudonyms,
        max_attempts=settings.max_attempts,
        on_due=wake,
        soon=soon,
    )
    group = await process.stack.enter_async_context(
        GroupCommit(
            accepting.flush,
            flights=asyncio.Semaphore(FLIGHTS),
            key=lambda candidate: candidate.request.key,
            size=lambda candidate: candidate.size,
            name="accept",
        )
    )
    watching = Hub(store)
    servicer = rpc.Scheduler(
        store,
        group,
        changes.Rescheduling(store, on_due=wake, soon=soon),
        redrives.Redriving(store, max_attempts=settings.max_attempts, on_due=wake),
        Pages(settings.secret(), "notifications"),
        Pages(settings.secret(), "cancellations"),
        Pages(settings.secret(), "redrives"),
        watching,
        call_timeout=settings.call_timeout,
        on_end=tell_end,
        on_lane=lambda: notifier.tell(LANES_TOPIC),
    )
    half = (settings.max_watchers + 1) // 2
    bounds = {rpc.WATCH: Bounds(settings.max_watchers, settings.watch_timeout, calls_of_a_tenant=half)}
    templates = rpc_templates.Templates(Catalogue(template_store), renderer, Pages(settings.secret(), "templates"))
    recipient_store = RecipientStore(database)
    recipients = rpc_recipients.Recipients(
        Subscribers(recipient_store),
        Erasure(ErasureStore(database), pseudonyms),
        Suppressions(recipient_store, pseudonyms),
        Pages(settings.secret(), "subscribers"),
        Pages(settings.secret(), "suppressions"),
        Pages(settings.secret(), "deleted suppressions"),
        on_end=tell_end,
        call_timeout=settings.call_timeout,
    )
    services = [rpc.service(servicer), rpc_templates.service(templates), rpc_recipients.service(recipients)]
    health = await process.serve(database, services, large=rpc.LARGE, bounds=bounds)
    if Metric.kept:
        await process.stack.enter_async_context(Gauges(store, database, settings.bounds()))
    await process.stack.enter_async_context(watching)  # leaves before the server, which waits for its streams
    await process.become_ready(database, health)


if __name__ == "__main__":
    run("scheduler", Settings, start)
