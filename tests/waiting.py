"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")


async def eventually(look: Callable[[], Awaitable[Found]], *, within: float = 20.0) -> Found:
    """The first truthy answer of `look`. Fails when there is none in time."""
    deadline = time.monotonic() + within
    while not (found := await look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s; the last answer was {found!r}")
        await asyncio.sleep(0.02)
    return found
