"""Waiting for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

Found = TypeVar("Found")


@overload
async def eventually(look: Callable[[], Awaitable[Found]], *, within: float = ..., pause: float = ...) -> Found: ...
@overload
async def eventually(look: Callable[[], bool], *, within: float = ..., pause: float = ...) -> bool: ...
async def eventually(
    look: Callable[[], Awaitable[Found] | bool], *, within: float = 20.0, pause: float = 0.02
) -> Found | bool:
    """The first truthy answer of `look`. Fails when there is none in time. A `pause` is for looks that cost much."""
    deadline = time.monotonic() + within
    while not (found := await _answer(look)):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s; the last answer was {found!r}")
        await asyncio.sleep(pause)
    return found


async def _answer(look: Callable[[], Awaitable[Found] | bool]) -> Found | bool:
    found = look()
    return await found if inspect.isawaitable(found) else found


async def settled(rounds: int = 50) -> None:
    """Lets every task run until it waits for something that only the test can bring."""
    for _ in range(rounds):
        await asyncio.sleep(0)
