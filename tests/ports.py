"""Who starts a `make up`, when others on this machine start theirs: free ports are chosen, and taken seconds later."""

import fcntl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from tests.waiting import eventually

LOCK = Path(tempfile.gettempdir()) / "notifyqueue-tests-ports"
WITHIN = 400.0


@asynccontextmanager
async def ports() -> AsyncIterator[None]:
    """From before ports are chosen until they are taken. One test at a time, in whatever process it runs."""
    with LOCK.open("a") as file:
        await eventually(lambda: _locked(file), within=WITHIN)
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
