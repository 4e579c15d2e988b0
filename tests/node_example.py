"""The Node example, installed in a checkout of its own: once for all who run at the same time."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import require_program

ROOT = Path(__file__).resolve().parent.parent


def installed(folders: pytest.TempPathFactory) -> Path:
    """The checkout. Each file of tests keeps to the scripts that it is about."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        checkout = folders.mktemp("checkout")
        _install(checkout)
        return checkout
    shared = folders.getbasetemp().parent
    checkout, done = shared / "node-checkout", shared / "node-installed"
    with (shared / "node-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _install(checkout)
            done.touch()
    return checkout


def _install(checkout: Path) -> None:
    for program in ("node", "npm"):
        require_program(program, Path(shutil.which(program) or program))
    without_modules = shutil.ignore_patterns("node_modules")
    shutil.copytree(ROOT / "examples/node", checkout / "examples/node", ignore=without_modules)
    shutil.copytree(ROOT / "proto", checkout / "proto")
    command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", "examples/node")
    installed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
