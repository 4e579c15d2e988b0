"""The Node example, installed in a checkout of its own."""

import shutil
import subprocess
from pathlib import Path

from tests.programs import require_program

ROOT = Path(__file__).resolve().parent.parent


def install(checkout: Path) -> None:
    for program in ("node", "npm"):
        require_program(program, Path(shutil.which(program) or program))
    without_modules = shutil.ignore_patterns("node_modules")
    shutil.copytree(ROOT / "examples/node", checkout / "examples/node", ignore=without_modules)
    shutil.copytree(ROOT / "proto", checkout / "proto")
    command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", "examples/node")
    installed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
