"""The start and stop contract of everything that runs in the background."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Self

import structlog

from shared.errors import DatabaseUnavailable

log = structlog.get_logger()

AFTER_ERROR = 1.0  # seconds, before jitter


class Loop:
    """Runs `turn` again and again, from entering to leaving.

    A turn does what is due and answers in how many seconds it wants to be called again: 0 if more is waiting, None if
    only a wake-up can bring work. Turns never overlap. One that raises is logged and repeated after a jittered pause:
    a loop does not die.
    """

    def __init__(self, name: str, turn: Callable[[], Awaitable[float | None]]) -> None:
        self._name = name
        self._turn = turn
        self._woken = asyncio.Event()
        self._allowed = asyncio.Event()
        self._allowed.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._leaving = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=self._name)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Begins no further turn; returns when the running one has ended."""
        self._leaving = True
        self._allowed.set()
        self.wake()
        await self._task

    def wake(self) -> None:
        """Begins the next turn now, or right after the running one."""
        self._woken.set()

    async def pause(self) -> None:
        """Begins no further turn until `resume`; returns when the running one has ended."""
        self._allowed.clear()
        await self._idle.wait()

    def resume(self) -> None:
        self._allowed.set()
        self.wake()

    async def _run(self) -> None:
        while await self._may_run():
            self._woken.clear()
            self._idle.clear()
            try:
                delay = await self._turn()
            except Exception as error:
                write = log.warning if isinstance(error, DatabaseUnavailable) else log.error
                write("loop.failed", loop=self._name, exc_info=error)
                delay = AFTER_ERROR * random.uniform(0.5, 1.5)
            finally:
                self._idle.set()
            await self._sleep(delay)

    async def _may_run(self) -> bool:
        while not self._allowed.is_set():  # it may be cleared again between the resume and our turn to run
            await self._allowed.wait()
        return not self._leaving

    async def _sleep(self, delay: float | None) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._woken.wait()
        except TimeoutError:
            pass
