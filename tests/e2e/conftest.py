"""`make up` as a person runs it, on a folder of its own."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.ports import ports
from tests.programs import require_program
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN = 180.0


@dataclass(frozen=True, slots=True)
class Up:
    """A `make up` that runs."""

    process: asyncio.subprocess.Process
    checkout: Path
    state: Path
    place: Mapping[str, Any]

    @property
    def page(self) -> str:
        return (self.state / "page.txt").read_text()

    @property
    def credentials(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call with the tenant's key."""
        return (("authorization", f"Bearer {self.place['key']}"),)

    def address(self, name: str) -> str:
        return str(self.place["addresses"][name])

    async def interrupt(self) -> int:
        """Ctrl-C. Answers the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        async with asyncio.timeout(WITHIN):
            return await self.process.wait()


@asynccontextmanager
async def up(
    state: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    checkout: Path = ROOT,
    command: Sequence[str] = (sys.executable, "-m", "sandbox.up"),
) -> AsyncIterator[Up]:
    """Runs it in a checkout, as Python or as make does, until it is up."""
    arguments = [f"ARGS=--state {state}"] if command[0] == "make" else ["--state", str(state)]
    if command[0] == "make":
        # As it would itself, but for longer than others should wait for their ports.
        await asyncio.to_thread(subprocess.run, [*command[:-1], ".venv/.ready"], cwd=checkout, check=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NOTIFYQUEUE_", "OTEL_"))}
    async with AsyncExitStack() as stack:
        async with ports():
            page = stack.enter_context((state / "page.txt").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *(*command, *arguments),
                cwd=checkout,
                env=inherited | dict(environment),
                stdout=page,
                stderr=page,
                start_new_session=True,  # a terminal's Ctrl-C goes to all of them
            )
            stack.push_async_callback(terminated, process)
            place = await eventually(lambda: _place(state, process), within=WITHIN)
        yield Up(process, checkout, state, place)


async def terminated(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def _place(state: Path, process: asyncio.subprocess.Process) -> dict[str, Any]:
    if process.returncode is not None:
        raise AssertionError((state / "page.txt").read_text())
    if "is up" not in (state / "page.txt").read_text():
        return {}
    place: dict[str, Any] = json.loads((state / "up.json").read_text())
    return place


@contextmanager
def open_folder() -> Iterator[Path]:
    # Not pytest's own folder, which is closed to the account that runs the server for root.
    folder = Path(tempfile.mkdtemp(prefix="notifyqueue-e2e-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def state() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def clone() -> Iterator[Path]:
    """This repository as somebody else has it, a moment after cloning it."""
    git = require_program("git", Path(shutil.which("git") or "git"))
    with open_folder() as folder:
        subprocess.run([git, "clone", "--quiet", ROOT, folder / "clone"], check=True)
        yield folder / "clone"


@pytest.fixture
def other_state() -> Iterator[Path]:
    """As another checkout has it."""
    with open_folder() as folder:
        yield folder
