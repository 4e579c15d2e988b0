"""What is published: the client package as a wheel, in a process that has nothing else of ours."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.command_line import ROOT

# What must not be needed is not found, wherever this repository may be.
ALONE = """
import sys
wheel, *missing = sys.argv[1:]
class But:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, *more):
        return None if name.partition('.')[0] in missing else self._finder.find_spec(name, *more)
sys.meta_path[:] = map(But, sys.meta_path)
sys.path.insert(0, wheel)
"""
OURS = ("services", "shared", "sandbox", "tests", "tools", "benchmarks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return built


def alone(wheel: Path, code: str, missing: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", ALONE + code, wheel, *missing],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_needs_nothing_of_ours_and_no_command_line(wheel: Path, tmp_path: Path) -> None:
    code = """
import pkgutil, notifyqueue, importlib
assert notifyqueue.__file__.startswith(wheel), notifyqueue.__file__
for module in pkgutil.walk_packages(notifyqueue.__path__, 'notifyqueue.'):
    if not module.name.startswith('notifyqueue.cli.') and module.name != 'notifyqueue.__main__':
        importlib.import_module(module.name)
print(len(notifyqueue.__all__), (importlib.resources.files(notifyqueue) / 'py.typed').is_file())
"""
    done = alone(
        wheel, "import importlib.resources" + code, (*OURS, "typer", "rich", "pydantic", "grpc_status"), tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[1] == "True"


def test_the_command_line_needs_nothing_of_ours_either(wheel: Path, tmp_path: Path) -> None:
    code = "sys.argv = ['notifyqueue', 'get']\nfrom notifyqueue.cli import main\nmain()"
    done = alone(wheel, code, OURS, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("notifyqueue: name it by its key")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(wheel: Path, tmp_path: Path, missing: str) -> None:
    done = alone(wheel, "from notifyqueue.cli import main\nmain()", [missing], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "notifyqueue: the command line needs more packages: pip install 'notifyqueue[cli]'\n"
