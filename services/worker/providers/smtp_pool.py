"""Connections that are kept for the next mail, few and not for long."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from services.worker.providers.smtp_session import Session, Stopped
from services.worker.providers.smtp_settings import SmtpSettings, Tls


class Pool:
    """Whoever holds a slot has one session in use. Those that rest are reused last in, first out, so that the rest of
    them age and go.
    """

    def __init__(self, settings: SmtpSettings) -> None:
        self._settings = settings
        self.slots = asyncio.Semaphore(settings.max_connections)
        self._resting: dict[Session, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._context: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        if self._settings.tls is not Tls.NONE:
            # Once, and in a thread: reading the system's authorities takes tens of milliseconds.
            self._context = await asyncio.to_thread(_trust, self._settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        while session := self.reuse():
            self._dismiss(session)
        await asyncio.gather(*self._leaving)

    def reuse(self) -> Session | None:
        """A session that rests, and that the server has not visibly closed meanwhile."""
        while self._resting:
            session, timer = self._resting.popitem()
            timer.cancel()
            if session.connected:
                return session
        return None

    async def open(self) -> Session:
        """A new session. Raises Stopped."""
        session = Session(self._settings, self._context)
        try:
            await session.open()
        except BaseException:
            session.abort()
            raise
        return session

    @contextmanager
    def keeping(self, session: Session) -> Iterator[None]:
        """The session in use: afterwards it rests, or is closed if it cannot be trusted any more."""
        try:
            yield
        except Stopped as stopped:
            if stopped.alive:
                self._rest(session)
            else:
                session.abort()
            raise
        except BaseException:
            session.abort()
            raise
        self._rest(session)

    def _rest(self, session: Session) -> None:
        if not session.connected or session.mails >= self._settings.max_messages:
            self._dismiss(session)
            return
        loop = asyncio.get_running_loop()
        self._resting[session] = loop.call_later(self._settings.idle_timeout, self._expire, session)

    def _expire(self, session: Session) -> None:
        del self._resting[session]
        self._dismiss(session)

    def _dismiss(self, session: Session) -> None:
        task = asyncio.create_task(session.leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _trust(settings: SmtpSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.ca_file:
        context.load_verify_locations(settings.ca_file)
    return context
