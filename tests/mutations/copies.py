"""Copies of the source, changed or not, and pytest runs in them."""

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.catalogue import Mutation

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = ("notifyqueue", "services", "shared", "sandbox", "tests")
TIME_LIMIT = 120.0  # seconds; a test that hangs has noticed nothing

PASSED, FAILED, BROKEN = "passed", "failed", "broken"


@dataclass(frozen=True)
class Ended:
    """How one test ended: BROKEN is what failed before the test began, or after it."""

    how: str
    why: str = ""


@contextmanager
def copy(mutations: Sequence[Mutation] = ()) -> Iterator[Path]:
    """A folder with what tests need, changed as they say."""
    with tempfile.TemporaryDirectory(prefix="notifyqueue-mutations-") as name:
        folder = Path(name)
        for part in NEEDED:
            shutil.copytree(CHECKOUT / part, folder / part)  # with what is compiled: it has the times of its sources
        shutil.copy2(CHECKOUT / "pyproject.toml", folder)
        for mutation in mutations:
            mutate(folder / mutation.file, mutation.edits)
        yield folder


def mutate(file: Path, edits: Mapping[str, str]) -> None:
    """A text that is not there once has moved, and with it the mechanism: the catalogue is to follow."""
    text = file.read_text()
    for out, instead in edits.items():
        times = text.count(out)
        assert times == 1, f"{file.name} has this {times} times instead of once: {out!r}"
        text = text.replace(out, instead)
    file.write_text(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def run(folder: Path, tests: Sequence[str]) -> tuple[int, Mapping[str, Ended]]:
    """How pytest ended, and each test. Plain, whatever the run that asks for it is given by its environment."""
    report = folder / "report.xml"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    plain = ("-o", "addopts=", "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=no", "-q")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, "-o", "junit_family=xunit1", f"--junit-xml={report}", *tests],
        cwd=folder,
        env=environment,
        timeout=TIME_LIMIT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert report.exists(), ran.stdout
    cases = ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314  (pytest wrote it just now)
    return ran.returncode, {f"{case.get('file')}::{case.get('name')}": _ended(case) for case in cases}


def _ended(case: ElementTree.Element) -> Ended:
    for tag, how in (("error", BROKEN), ("skipped", BROKEN), ("failure", FAILED)):
        if (found := case.find(tag)) is not None:
            return Ended(how, str(found.get("message")))
    return Ended(PASSED)
