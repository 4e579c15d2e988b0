"""Copies of the source, changed or not, and pytest runs in them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutations.catalogue import Mutation

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = ("notifyqueue", "services", "shared", "sandbox", "tests", "tools")
TIME_LIMIT = 300.0  # seconds, on a busy machine; a test that hangs has noticed nothing

PASSED = "passed"


@contextmanager
def copy(mutations: Sequence[Mutation] = ()) -> Iterator[Path]:
    """A folder with what tests need, changed as they say."""
    with tempfile.TemporaryDirectory(prefix="notifyqueue-mutations-") as name:
        folder = Path(name)
        for part in NEEDED:
            # With what is compiled, which has the times of its sources, but for what somebody writes just now.
            shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc.*"))
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


def run(folder: Path, tests: Sequence[str]) -> tuple[int, Mapping[str, str]]:
    """How pytest ended, and each test: what failed it, begun with "error" where that was not the test itself.

    Plain, whatever this run was given by its environment.
    """
    report = folder / "report.xml"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    plain = ("-o", "addopts=", "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=no", "-q")
    command = [sys.executable, "-m", "pytest", *plain, "-o", "junit_family=xunit1", f"--junit-xml={report}", *tests]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ran:
        try:
            output, _ = ran.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            ran.send_signal(signal.SIGINT)  # as Ctrl-C: it stops its servers
            output, _ = ran.communicate(timeout=TIME_LIMIT)
            raise AssertionError(f"did not end in {TIME_LIMIT} s: {output}") from None
    assert report.exists(), output
    cases = ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314  (pytest wrote it just now)
    return ran.returncode, {f"{case.get('file')}::{case.get('name')}": _ended(case) for case in cases}


def _ended(case: ElementTree.Element) -> str:
    for tag, prefix in (("error", "error: "), ("skipped", "error: skipped "), ("failure", "")):
        if (found := case.find(tag)) is not None:
            return prefix + str(found.get("message")).removeprefix("AssertionError: ")
    return PASSED


def missed(mutation: Mutation, ended: Mapping[str, str]) -> dict[str, str]:
    """Of its tests those that did not fail by what they should, with how they ended."""
    found = {test: ended.get(test, "error: did not run") for test in mutation.tests}
    return {test: how for test, how in found.items() if not how.startswith(mutation.by)}
