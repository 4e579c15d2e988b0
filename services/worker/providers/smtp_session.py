"""One conversation with an SMTP server, driven step by step, so that it is always known how far it came.

What the library does by itself is not used here: it would fall back to HELO, try a second way to authenticate, upgrade
to TLS unasked, and wait for the answer to the final dot as long as for the answer to DATA.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

import aiosmtplib

from services.worker.providers import Answer, Handover, Outcome
from services.worker.providers.mail import Mail, Mailbox, stuffed
from services.worker.providers.smtp_codes import Phase, judge, judge_silence
from services.worker.providers.smtp_settings import PORTS, SmtpSettings, Tls

LEAVE_TIMEOUT = 2.0

FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (ssl.SSLCertVerificationError, "certificate"),
    (ssl.SSLError, "tls"),
    (socket.gaierror, "unresolved"),
    (ConnectionRefusedError, "refused"),
    (aiosmtplib.SMTPServerDisconnected, "closed"),
    (ConnectionError, "closed"),
    (TimeoutError, "timeout"),
)


class Stopped(Exception):
    """A conversation did not reach a yes. `outcome` is what that means, `alive` whether the server still listens."""

    def __init__(self, phase: Phase, outcome: Outcome, *, alive: bool) -> None:
        super().__init__(outcome.code)
        self.phase = phase
        self.outcome = outcome
        self.alive = alive


class Session:
    """One connection, used for one mail after the other. Every step raises Stopped."""

    def __init__(self, settings: SmtpSettings, context: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._client = aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.port or PORTS[settings.tls],
            # Asked for by name, the library would look this machine up in the DNS.
            local_hostname=Mailbox.parse("sender", settings.sender).domain,
            timeout=settings.command_timeout,
            use_tls=settings.tls is Tls.TLS,
            start_tls=False,
            tls_context=context,
        )
        self._unfinished = False
        self.mails = 0

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    async def open(self) -> None:
        with self._step(Phase.CONNECT):
            await self._client.connect(timeout=self._settings.connect_timeout)
            await self._introduce()
        if self._settings.tls is Tls.STARTTLS:
            await self._secure()
        if self._settings.username:
            await self._authenticate()
        with self._step(Phase.CONNECT):
            self._writer = self._open_writer()

    async def offer(self, mail: Mail) -> None:
        """Everything but the final dot. Until `finish`, the server must not deliver."""
        self._check(mail)
        self.mails += 1
        if self._unfinished:
            await self._reset()
        self._unfinished = True
        await self._say(Phase.MAIL, b"MAIL", f"FROM:<{mail.sender}>".encode(), *self._parameters(mail))
        await self._say(Phase.RCPT, b"RCPT", f"TO:<{mail.recipient}>".encode())
        await self._say(Phase.DATA, b"DATA", expected=3)
        with self._step(Phase.DATA):
            async with asyncio.timeout(self._settings.command_timeout):
                self._writer.write(stuffed(mail.body))
                await self._writer.drain()

    async def finish(self, handover: Handover) -> Outcome:
        """The final dot, and the server's yes."""
        await asyncio.sleep(0)  # a close that has arrived is seen now, while it still means that nothing was delivered
        protocol = self._client.protocol
        if protocol is None or not protocol.is_connected:
            raise Stopped(Phase.DATA, judge_silence(Phase.DATA, "closed"), alive=False)
        with self._step(Phase.DOT):
            handover.begin()
            protocol.write(b".\r\n")
            reply = await protocol.read_response(timeout=self._settings.answer_timeout)
        self._expect(2, Phase.DOT, reply)
        self._unfinished = False
        return judge(Phase.DOT, reply.code, reply.message)

    async def leave(self) -> None:
        """Says QUIT. Whatever comes of it, nothing depends on it."""
        transport = self._client.transport
        with suppress(aiosmtplib.SMTPException, OSError):
            await self._client.quit(timeout=LEAVE_TIMEOUT)
        if transport is not None:
            cast(asyncio.WriteTransport, transport).abort()
        self._client.close()

    def abort(self) -> None:
        """Closes at once. A mail whose final dot has not gone out stays undelivered."""
        if self._client.transport is not None:
            cast(asyncio.WriteTransport, self._client.transport).abort()
        self._client.close()

    def _open_writer(self) -> asyncio.StreamWriter:
        self._ensure_connected()
        transport = cast(asyncio.WriteTransport, self._client.transport)
        # So that `drain` means handed on, not merely noted. (High must not be 0: asyncio's TLS would pause for good.)
        transport.set_write_buffer_limits(high=1, low=0)
        protocol = cast(asyncio.Protocol, self._client.protocol)
        return asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())

    async def _introduce(self) -> None:
        await self._client.ehlo()
        self._ensure_connected()  # or what the server can do is forgotten already, and would seem to be missing

    def _ensure_connected(self) -> None:
        if not self._client.is_connected:
            raise aiosmtplib.SMTPServerDisconnected("closed")

    async def _secure(self) -> None:
        if not self._client.supports_extension("starttls"):
            raise Stopped(Phase.TLS, Outcome(Answer.MISCONFIGURED, "starttls-missing"), alive=True)
        with self._step(Phase.TLS):
            await self._client.starttls()
            await self._introduce()

    async def _authenticate(self) -> None:
        methods = {"plain": self._client.auth_plain, "login": self._client.auth_login}
        method = next((methods[name] for name in methods if name in self._client.server_auth_methods), None)
        if method is None:
            raise Stopped(Phase.AUTH, Outcome(Answer.MISCONFIGURED, "auth-missing"), alive=True)
        with self._step(Phase.AUTH):
            await method(self._settings.username, self._settings.password)

    def _check(self, mail: Mail) -> None:
        """What the server has said it will not take. Another relay may: neither is held against the address."""
        limit = self._client.esmtp_extensions.get("size", "")
        if limit.isdigit() and 0 < int(limit) < len(mail.body):  # RFC 1870: 0 is no limit
            raise Stopped(Phase.MAIL, Outcome(Answer.PERMANENT_MESSAGE, "size-exceeded"), alive=True)
        if mail.international and not self._client.supports_extension("smtputf8"):
            raise Stopped(Phase.MAIL, Outcome(Answer.PERMANENT_MESSAGE, "smtputf8-missing"), alive=True)

    def _parameters(self, mail: Mail) -> Iterator[bytes]:
        if self._client.supports_extension("size"):
            yield b"SIZE=%d" % len(mail.body)
        if mail.international:
            yield b"SMTPUTF8"
            if self._client.supports_extension("8bitmime"):
                yield b"BODY=8BITMIME"

    async def _reset(self) -> None:
        try:
            await self._say(Phase.MAIL, b"RSET")
        except Stopped as stopped:
            raise Stopped(stopped.phase, stopped.outcome, alive=False) from None

    async def _say(self, phase: Phase, *words: bytes, expected: int = 2) -> None:
        with self._step(phase):
            reply = await self._client.execute_command(*words)
        self._expect(expected, phase, reply)

    def _expect(self, digit: int, phase: Phase, reply: aiosmtplib.SMTPResponse) -> None:
        if reply.code // 100 != digit:
            raise self._refusal(phase, reply.code, reply.message)

    @contextmanager
    def _step(self, phase: Phase) -> Iterator[None]:
        try:
            yield
        except aiosmtplib.SMTPResponseException as error:
            raise self._refusal(phase, error.code, error.message) from None
        except (aiosmtplib.SMTPException, OSError) as error:  # OSError: timeouts and TLS, too
            raise Stopped(phase, judge_silence(phase, _fault(error)), alive=False) from None

    def _refusal(self, phase: Phase, code: int, text: str) -> Stopped:
        if code < 100:  # how the library says that it was no reply at all
            return Stopped(phase, judge_silence(phase, "malformed"), alive=False)
        # A reply that is neither a no nor what was expected belongs to something else: from here on we would read
        # answers to questions that were not asked.
        alive = self._client.is_connected and code >= 400
        return Stopped(phase, judge(phase, code, text), alive=alive)


def _fault(error: Exception) -> str:
    for suspect in (error.__cause__, error):
        for kind, name in FAULTS:
            if isinstance(suspect, kind):
                return name
    return "failed"
