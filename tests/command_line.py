"""The command line: in this process, which is quick, or as a process of its own, which can be interrupted.

In this process it has a loop of its own, so a test that runs it this way is no coroutine, and whoever answers it is a
process or in threads.
"""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from notifyqueue.cli.app import run

ROOT = Path(__file__).resolve().parent.parent
NOTHING: Mapping[str, str] = MappingProxyType({})
WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        (found,) = self.records
        return found


class CommandLine:
    """Runs commands here. `address` is whom they call unless they say another."""

    def __init__(self, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._patch = patch
        for name in list(os.environ):
            if name.startswith("NOTIFYQUEUE_"):
                patch.delenv(name)

    def calls(self, address: str) -> None:
        self._patch.setenv("NOTIFYQUEUE_ADDRESS", address)

    def __call__(self, *arguments: str, given: bytes = b"", **settings: str) -> Finished:
        """Runs it to its end. `settings` are environment variables, `given` is stdin."""
        self._capture.readouterr()
        with self._patch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            code = run(arguments)
        captured = self._capture.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Finished(code, captured.out, captured.err)


@asynccontextmanager
async def started(
    *arguments: str, stdout: int = asyncio.subprocess.PIPE, settings: Mapping[str, str] = NOTHING
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m notifyqueue`. `settings` are environment variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NOTIFYQUEUE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "notifyqueue", *arguments),
        cwd=ROOT,
        env=inherited | dict(settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def finished(process: asyncio.subprocess.Process) -> Finished:
    async with asyncio.timeout(WITHIN):
        out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in (out or b"") + err, err.decode()
    return Finished(process.returncode, (out or b"").decode(), err.decode())
