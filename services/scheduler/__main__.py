"""The scheduler process: `python -m services.scheduler`."""

import asyncio
from datetime import timedelta
from functools import partial

if __name__ == "__main__":
    from shared import starting

    starting.begin()  # until `run`

from services.scheduler import changes, redrives, rpc, rpc_recipients, rpc_templates
from services.scheduler.accept import Accept
from services.scheduler.accept_store import AcceptStore
from services.scheduler.erasure import Erasure
from services.scheduler.erasure_store import ErasureStore
from services.scheduler.gauges import Gauges
from services.scheduler.judging import Answer, Candidate
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
from shared.database import Database
from shared.layers import Bounds
from shared.listener import Notifier
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
    watching = Hub(store)
    template_store = TemplateStore(database)
    renderer = Renderer(template_store)
    group = await _accepting(process, settings, AcceptStore(database), renderer, notifier)
    templates = rpc_templates.Templates(Catalogue(template_store), renderer, Pages(settings.secret(), "templates"))
    services = [
        rpc.service(_scheduler(settings, store, group, watching, notifier)),
        rpc_templates.service(templates),
        rpc_recipients.service(_recipients(settings, database, notifier)),
    ]
    half = (settings.max_watchers + 1) // 2
    bounds = {rpc.WATCH: Bounds(settings.max_watchers, settings.watch_timeout, calls_of_a_tenant=half)}
    health = await process.serve(database, services, large=rpc.LARGE, bounds=bounds)
    if Metric.kept:
        await process.stack.enter_async_context(Gauges(store, database, settings.bounds()))
    await process.stack.enter_async_context(watching)  # leaves before the server, which waits for its streams
    await process.become_ready(database, health)


async def _accepting(
    process: Process, settings: Settings, store: AcceptStore, renderer: Renderer, notifier: Notifier
) -> GroupCommit[Candidate, Answer]:
    accepting = Accept(
        store,
        renderer,
        pseudonyms=partial(pseudonym, settings.secret()),
        max_attempts=settings.max_attempts,
        on_due=notifier.tell_due,
        soon=timedelta(seconds=settings.poll_interval),
    )
    return await process.stack.enter_async_context(
        GroupCommit(
            accepting.flush,
            flights=asyncio.Semaphore(FLIGHTS),
            key=lambda candidate: candidate.request.key,
            size=lambda candidate: candidate.size,
            name="accept",
        )
    )


def _scheduler(
    settings: Settings, store: Store, group: GroupCommit[Candidate, Answer], watching: Hub, notifier: Notifier
) -> rpc.Scheduler:
    return rpc.Scheduler(
        store,
        group,
        changes.Rescheduling(store, on_due=notifier.tell_due, soon=timedelta(seconds=settings.poll_interval)),
        redrives.Redriving(store, max_attempts=settings.max_attempts, on_due=notifier.tell_due),
        Pages(settings.secret(), "notifications"),
        Pages(settings.secret(), "cancellations"),
        Pages(settings.secret(), "redrives"),
        watching,
        call_timeout=settings.call_timeout,
        on_end=notifier.tell_end,
        on_lane=notifier.tell_lanes,
    )


def _recipients(settings: Settings, database: Database, notifier: Notifier) -> rpc_recipients.Recipients:
    store, pseudonyms = RecipientStore(database), partial(pseudonym, settings.secret())
    return rpc_recipients.Recipients(
        Subscribers(store),
        Erasure(ErasureStore(database), pseudonyms),
        Suppressions(store, pseudonyms),
        Pages(settings.secret(), "subscribers"),
        Pages(settings.secret(), "suppressions"),
        Pages(settings.secret(), "deleted suppressions"),
        on_end=notifier.tell_end,
        call_timeout=settings.call_timeout,
    )


if __name__ == "__main__":
    run("scheduler", Settings, start)
