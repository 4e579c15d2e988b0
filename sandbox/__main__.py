"""Runs the sandbox's servers until SIGTERM or SIGINT."""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

if __name__ == "__main__":
    from shared import starting

    starting.begin()

import structlog
from pydantic import ValidationError

from sandbox import accounts
from sandbox.fcm import Fcm
from sandbox.inbox import Inbox
from sandbox.mailbox import Mailbox
from sandbox.mock_provider import MockProvider
from sandbox.receiver import Receiver
from sandbox.resend import Resend
from sandbox.server import HttpServer, Service
from sandbox.settings import PREFIX, Settings
from sandbox.store import Store
from sandbox.twilio import Twilio
from sandbox.viewer import Viewer
from shared import logs
from shared.starting import settle

log = structlog.get_logger()

EX_CONFIG = 78  # sysexits.h: something was found in an unconfigured or misconfigured state


async def start(settings: Settings, stack: AsyncExitStack) -> tuple[Mailbox, HttpServer]:
    """Enters everything on the stack; a further server is a further line."""
    store = await stack.enter_async_context(Store(settings.database_url.get_secret_value()))
    if settings.webhook_secret:
        await store.put_webhook_secret(accounts.RECEIVER, settings.webhook_secret.get_secret_value())
    host = str(settings.listen_host)
    mailbox = await stack.enter_async_context(Mailbox(store, settings.smtp_port, host))
    mock = MockProvider(store, settings.mock_transient_rate)
    services: list[Service] = [Inbox(store), Viewer(store), Receiver(store), mock, Resend(store), Twilio(store)]
    if settings.fcm_credentials_file:
        services.append(Fcm(store, settings.fcm_credentials_file.read_text()))
    http = await stack.enter_async_context(HttpServer(settings.http_port, services, host))
    return mailbox, http


async def run(settings: Settings) -> None:
    logs.configure("sandbox", settings.log_level)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        mailbox, http = await start(settings, stack)
        log.info("sandbox.started", smtp_port=mailbox.port, http_port=http.port)
        await stop.wait()
    log.info("sandbox.stopped")


def main() -> None:
    try:
        settings = Settings()  # type: ignore[call-arg]  # from the environment
    except ValidationError as error:
        for fault in error.errors(include_input=False):
            print(f"{PREFIX}{str(fault['loc'][0]).upper()}: {fault['msg']}", file=sys.stderr)
        sys.exit(EX_CONFIG)
    settle()
    asyncio.run(run(settings))


if __name__ == "__main__":
    main()
