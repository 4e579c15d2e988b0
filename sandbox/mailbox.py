"""An SMTP server that delivers to a table, and fails as the addresses ask it to (`scripts.py`).

aiosmtpd's protocol on our own event loop, without its Controller, which would run another one in a thread.
"""

# ruff: noqa: N802 - aiosmtpd finds what it calls by these names

import asyncio
import re
from collections.abc import Sequence
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Never, Self, cast

from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as Peer

from sandbox import scripts
from sandbox.scripts import ACCEPT, SMTP_WORDS, Action, Kind, Stage
from sandbox.store import Mail, Store

HOST = "127.0.0.1"
NAME = "sandbox.localhost"
SERVER = "smtp"
MAX_SIZE = 10 * 1024 * 1024
MESSAGE_ID = re.compile(r"<([^<>@\s]+)@[^<>\s]*>")
TEXTS = {454: "Throttling failure: Maximum sending rate exceeded."}


class Mailbox:
    """`port` is 0 for any free one, and the real one once entered."""

    def __init__(self, store: Store, port: int, host: str = HOST) -> None:
        self.port = port
        self._host = host
        self._store = store
        self._open: set[_Conversation] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Conversation(self._store, self._open), self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        while self._open:
            for conversation in set(self._open):
                conversation.abort()
            await asyncio.sleep(0)
        await self._server.wait_closed()


class _Conversation(SMTP):
    def __init__(self, store: Store, others: "set[_Conversation]") -> None:
        self._clerk = _Clerk(store)
        self._others = others
        super().__init__(
            self._clerk,
            data_size_limit=MAX_SIZE,
            enable_SMTPUTF8=True,
            hostname=NAME,
            ident="sandbox",
            loop=asyncio.get_running_loop(),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._others.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._others.discard(self)

    def abort(self) -> None:
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    async def smtp_DATA(self, arg: str) -> None:
        action = self._clerk.action
        if action.kind is Kind.REFUSE and action.stage is Stage.DATA:
            await self.push(_reply(action))
        elif action.kind is Kind.CLOSE:
            await self.push("354 Go on, it will not help")
            self.abort()
        else:
            await super().smtp_DATA(arg)


class _Clerk:
    """What happens in one conversation: aiosmtpd calls these, and sends what they answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.action = ACCEPT

    async def handle_MAIL(
        self, server: SMTP, peer: Peer, envelope: Envelope, address: str, options: Sequence[str]
    ) -> str:
        action = await self._next(address)
        if not action.accepts:
            await self._store.add_request(SERVER, address, str(action))
            return await self._refuse(server, action)
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 2.1.0 Ok"

    async def handle_RCPT(
        self, server: SMTP, peer: Peer, envelope: Envelope, address: str, options: Sequence[str]
    ) -> str:
        self.action = await self._next(address)
        await self._store.add_request(SERVER, address, str(self.action))
        in_envelope = self.action.kind is Kind.REFUSE and self.action.stage is Stage.ENVELOPE
        if in_envelope or self.action.kind is Kind.HANG:
            return await self._refuse(server, self.action)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, server: SMTP, peer: Peer, envelope: Envelope) -> str:
        if self.action.kind is Kind.REFUSE:
            return await self._refuse(server, self.action)
        number = 0
        for address in envelope.rcpt_tos:
            number = await self._store.add_mail(_mail(envelope, address))
        if self.action.kind is Kind.ACCEPT_THEN_CLOSE:
            _close(server)
        if self.action.kind is not Kind.ACCEPT:
            await _hang()
        return f"250 2.0.0 Ok: queued as sandbox-{number}"

    async def handle_exception(self, error: Exception) -> str:
        return "451 4.3.0 The sandbox has a fault, most likely no database"

    async def _next(self, address: str) -> Action:
        script = scripts.of_address(address, SMTP_WORDS)
        return script.action(await self._store.count_play(SERVER, address)) if script.steps else ACCEPT

    async def _refuse(self, server: SMTP, action: Action) -> str:
        if action.kind is Kind.REFUSE and action.code != 421:
            return _reply(action)
        if action.kind is Kind.REFUSE:
            await server.push(_reply(action))
        if action.kind is not Kind.HANG:
            _close(server)
        return await _hang()


def _reply(action: Action) -> str:
    text = TEXTS.get(action.code, "As the script says")
    return f"{action.code} {action.status} {text}" if action.status else f"{action.code} {text}"


def _close(server: SMTP) -> None:
    """Also ends the conversation's task, at its next wait."""
    if server.transport is not None:
        cast(asyncio.WriteTransport, server.transport).close()


async def _hang() -> Never:
    """Until the client leaves, or the sandbox stops: aiosmtpd cancels whatever its conversation waits for."""
    while True:
        await asyncio.Event().wait()


def _mail(envelope: Envelope, address: str) -> Mail:
    raw = cast(bytes, envelope.original_content)
    message = message_from_bytes(raw, policy=default)
    found = MESSAGE_ID.search(str(message.get("Message-ID", "")))
    return Mail(
        delivery_key=found[1] if found else None,
        address=address,
        sender=str(envelope.mail_from),
        subject=_clean(str(message.get("Subject", ""))),
        text=_part(message, "plain"),
        html=_part(message, "html"),
        raw=raw,
    )


def _part(message: EmailMessage, kind: str) -> str | None:
    part = message.get_body((kind,))
    return _clean(str(cast(EmailMessage, part).get_content())).replace("\r\n", "\n") if part else None


def _clean(text: str) -> str:
    """As a database takes it."""
    return text.encode(errors="replace").decode().replace("\x00", "\ufffd")
