"""What a process loads before anybody has asked for anything: each start pays for it."""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from notifyqueue import cli
from notifyqueue.cli import app
from shared import process
from shared.settings import ProcessSettings

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# One process for all, in this order: each loads nothing that one after it must not.
STARTS = """
import asyncio, gc, json, runpy, sys, uuid

loaded = {}

def started(module):
    # As a program of its own, until it sees that it has no settings.
    for name in [name for name in sys.modules if name.partition(".")[0] in ("structlog", "rich")]:
        del sys.modules[name]
    gc.enable()
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as ended:
        assert (ended.code, gc.isenabled()) == (78, False)
    return list(sys.modules)

from notifyqueue.cli.app import application
application(["send", "--json"])
loaded["the command line"] = list(sys.modules)

loaded["the scheduler"] = started("services.scheduler")
loaded["a worker"] = started("services.worker")

from services.worker.providers.catalogue import choose_providers
from services.worker.settings import Settings

choose_providers(
    Settings(
        database_url="postgresql://db",
        secret_key="a secret key for tests, 32 characters",
        smtp_host="mail.example.com",
        smtp_sender="shop@example.com",
    )
)
loaded["a worker that sends mail"] = list(sys.modules)

import sandbox.up
loaded["make up"] = list(sys.modules)

started("services.dispatcher")
from shared import telemetry

async def start():
    async with telemetry.configured("dispatcher", uuid.uuid4()):
        loaded["the dispatcher"] = list(sys.modules)

asyncio.run(start())
loaded["the sandbox"] = started("sandbox")
print(json.dumps(loaded))
"""

# What a program says to grpc before that looks, and to the collector before the work begins and when it ends.
PARENT = """
import atexit, gc, json, os, runpy, sys

seen = {"told": []}

class WhenGrpcLooks:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            seen["told"].append(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
            seen["begun"] = not gc.isenabled()
            seen["drawing"] = "rich" in sys.modules
            if not sys.argv[1:]:
                sys.exit()  # before it does what it is for

def ended():
    seen["left alone at the end"] = gc.get_freeze_count() >= seen["settled"] + len(made_later)
    print(json.dumps(seen))

sys.meta_path.insert(0, WhenGrpcLooks())
atexit.register(ended)
module, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_module(module, run_name="__main__")
except SystemExit as end:
    assert not end.code
seen["settled"] = gc.isenabled() and gc.get_freeze_count()
made_later = [[] for _ in range(100_000)]
"""

DRAWING = {"rich"}  # which structlog loads wherever it is
TELEMETRY = {"opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "prometheus_client"}
OF_SOME = DRAWING | TELEMETRY | {"google.auth", "cryptography.x509"}  # who traces, who pushes, who shows a certificate
UNASKED: Mapping[str, Set[str]] = {
    "the command line": {"rich", "opentelemetry", "notifyqueue.cli.batch", "notifyqueue.v1.worker_pb2"},
    "the scheduler": OF_SOME | {"aiohttp"},
    "a worker": OF_SOME | {"aiohttp", "aiosmtplib"},
    "a worker that sends mail": OF_SOME | {"aiohttp"},
    "make up": DRAWING | TELEMETRY | {"aiohttp"},
    "the dispatcher": OF_SOME,
    "the sandbox": DRAWING | TELEMETRY,
}


@pytest.fixture(scope="module")
def loaded() -> Mapping[str, Set[str]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NOTIFYQUEUE_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, "-c", STARTS], cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {program: set(modules) for program, modules in json.loads(done.stdout).items()}


@pytest.mark.parametrize("program", ["sandbox.up", "sandbox.demo"])
def test_who_starts_the_others_spares_them_what_grpc_does_to_children_and_collects_like_them(program: str) -> None:
    seen = _as_a_parent(program, "--help")
    assert seen["told"] == ["0"]
    assert seen["settled"] > 10_000
    assert (seen["begun"], seen["drawing"]) == (True, False)
    assert seen["left alone at the end"]


@pytest.mark.parametrize("program", ["benchmarks", "tests.conftest", "tools.inbox_picture", "tools.trace_page"])
def test_whatever_has_children_spares_them_what_grpc_does_to_them(program: str) -> None:
    assert _as_a_parent(program)["told"] == ["0"]


def _as_a_parent(*arguments: str) -> Mapping[str, Any]:
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", PARENT, *arguments],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("program", UNASKED)
def test_a_start_loads_nothing_that_nobody_has_asked_for(loaded: Mapping[str, Set[str]], program: str) -> None:
    assert loaded[program] & UNASKED[program] == set()


def test_what_is_loaded_is_looked_through_no_more_and_all_else_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFYQUEUE_DATABASE_URL", "postgresql://db")
    monkeypatch.setenv("NOTIFYQUEUE_SECRET_KEY", "a secret key for tests, 32 characters")
    seen: list[tuple[bool, bool]] = []

    def run(coroutine: Coroutine[None, None, None]) -> None:
        coroutine.close()
        seen.append((gc.isenabled(), gc.get_freeze_count() > 10_000 and gc.get_threshold()[0] > 1_000))

    async def start(*_: object) -> None:
        """Is not come to."""

    monkeypatch.setattr(asyncio, "run", run)
    thresholds = gc.get_threshold()
    gc.disable()  # as the processes do while they import
    try:
        process.run("test", ProcessSettings, start)
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert seen == [(True, True)]


def test_a_command_looks_through_what_it_has_imported_neither_while_it_runs_nor_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, int]] = []

    def run(_: Sequence[str]) -> int:
        seen.append((gc.get_threshold()[0], gc.get_freeze_count()))
        return 7

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    thresholds = gc.get_threshold()
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 7
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert seen == [(cli.GARBAGE, 0)]
