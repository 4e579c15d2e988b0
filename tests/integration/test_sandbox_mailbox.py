"""The sandbox as a whole: what arrives can be looked at over HTTP, also after a restart."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import aiohttp
import aiosmtplib
import pytest
from pydantic import SecretStr

from sandbox.__main__ import start
from sandbox.settings import Settings

ROOT = Path(__file__).parent.parent.parent
KEY = "01936b4e-7a10-7c3e-9d7f-0123456789ab"


def _settings(url: str, **changes: Any) -> Settings:
    return Settings(database_url=SecretStr(url), **{"smtp_port": 0, "http_port": 0} | changes)


@asynccontextmanager
async def _sandbox(url: str) -> AsyncIterator[tuple[int, str]]:
    """Its SMTP port and its HTTP address."""
    async with AsyncExitStack() as stack:
        mailbox, http = await start(_settings(url), stack)
        yield mailbox.port, f"http://127.0.0.1:{http.port}"


async def _get(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json()


async def _read(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        return await response.text()


def _mail(key: str = KEY) -> EmailMessage:
    mail = EmailMessage()
    mail["Message-ID"] = f"<{key}@example.com>"
    mail["From"] = "notify@example.com"
    mail["To"] = "anna@example.org"
    mail["Subject"] = "Grüße"
    mail.set_content("Hallo")
    mail.add_alternative("<p>Hallo</p>", subtype="html")
    return mail


async def _send(port: int, mail: EmailMessage) -> None:
    await aiosmtplib.send(mail, hostname="127.0.0.1", port=port)


async def test_mails_can_be_read(database_url: str) -> None:
    async with _sandbox(database_url) as (port, url):
        await _send(port, _mail())
        (mail,) = await _get(f"{url}/mails?address=anna@example.org")
        assert (mail["delivery_key"], mail["subject"]) == (KEY, "Grüße")
        assert (mail["text"], mail["html"]) == ("Hallo\n", "<p>Hallo</p>\n")
        assert await _get(f"{url}/mails/{KEY}") == [mail]
        assert await _get(f"{url}/mails?address=nobody@example.org") == []
        assert await _get(f"{url}/mails/unknown") == []
        (request,) = await _get(f"{url}/requests?server=smtp&address=anna@example.org")
        assert request["action"] == "accept"
        assert await _get(f"{url}/healthz") == {"status": "ok"}


async def test_a_sender_that_is_refused_is_among_the_requests(database_url: str) -> None:
    mail, sender = _mail(), "451x1+notify@example.com"
    mail.replace_header("From", sender)
    async with _sandbox(database_url) as (port, url):
        with pytest.raises(aiosmtplib.SMTPSenderRefused):
            await _send(port, mail)
        await _send(port, mail)
        requests = await _get(f"{url}/requests?server=smtp")
        assert [(request["address"], request["action"]) for request in requests] == [
            (sender, "451"),
            ("anna@example.org", "accept"),
        ]


async def test_copies_are_kept_apart(database_url: str) -> None:
    async with _sandbox(database_url) as (port, url):
        for _ in range(2):
            await _send(port, _mail())
        assert len(await _get(f"{url}/mails/{KEY}")) == 2


@pytest.mark.parametrize("identity", ["<not-a-uuid@example.com>", "nonsense"])
async def test_mails_of_others_are_kept(database_url: str, identity: str) -> None:
    mail = _mail()
    del mail["Message-ID"]
    mail["Message-ID"] = identity
    async with _sandbox(database_url) as (port, url):
        await _send(port, mail)
        assert len(await _get(f"{url}/mails")) == 1


async def test_survives_a_restart(database_url: str) -> None:
    async with _sandbox(database_url) as (port, _):
        await _send(port, _mail())
        with pytest.raises(aiosmtplib.SMTPRecipientsRefused):
            await aiosmtplib.send(_mail(), hostname="127.0.0.1", port=port, recipients=["451x1+anna@example.org"])
    async with _sandbox(database_url) as (port, url):
        await aiosmtplib.send(_mail(), hostname="127.0.0.1", port=port, recipients=["451x1+anna@example.org"])
        assert len(await _get(f"{url}/mails")) == 2


async def test_two_can_start_at_once(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(start(_settings(database_url), stack) for _ in range(3)))


async def test_stops_while_clients_hang(database_url: str) -> None:
    async with AsyncExitStack() as clients, _sandbox(database_url) as (port, url):
        smtp = await clients.enter_async_context(aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=False))
        sending = asyncio.create_task(
            smtp.sendmail("notify@example.com", ["accept-then-hang@example.org"], b"Subject: s\r\n\r\nt\r\n")
        )
        session = await clients.enter_async_context(aiohttp.ClientSession())
        posting = asyncio.create_task(session.post(f"{url}/webhooks/hang", data=b"{}"))
        changes = asyncio.create_task(_read(session, f"{url}/inbox/changes"))
        while len(await _get(f"{url}/requests")) < 2:  # until both are known to hang
            await asyncio.sleep(0)
    with pytest.raises(aiosmtplib.SMTPServerDisconnected):
        await sending
    assert (await posting).status == 503
    assert (await changes).startswith("data:\n\n")


async def test_runs_as_a_process(database_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    environment |= {"SANDBOX_DATABASE_URL": database_url, "SANDBOX_SMTP_PORT": "0", "SANDBOX_HTTP_PORT": "0"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox", cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    started = json.loads(await process.stdout.readline())
    assert started["event"] == "sandbox.started"
    await _send(started["smtp_port"], _mail())
    assert len(await _get(f"http://127.0.0.1:{started['http_port']}/mails")) == 1
    process.send_signal(signal.SIGTERM)
    rest, _ = await process.communicate()
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["sandbox.stopped"]


async def test_settings_that_cannot_be_used(database_url: str) -> None:
    environment = {"PATH": os.environ["PATH"], "SANDBOX_SMTP_PORT": "mail", "SANDBOX_MOCK_TRANSIENT_RATE": "2"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 78
    named = {line.partition(":")[0] for line in errors.decode().splitlines()}
    assert named == {"SANDBOX_DATABASE_URL", "SANDBOX_SMTP_PORT", "SANDBOX_MOCK_TRANSIENT_RATE"}
