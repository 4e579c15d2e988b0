"""Generates notifyqueue/v1 from proto/, or says which of its files have drifted: `python -m tools.stubs [--check]`."""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PROTOS = CHECKOUT / "proto"
PACKAGE = Path("notifyqueue", "v1")
DOCSTRING = '"""Generated from proto/notifyqueue/v1 by `make stubs`; not to be edited."""\n'


def generate(root: Path) -> Path:
    """Writes the package below `root`, where none is yet."""
    package = root / PACKAGE
    package.mkdir(parents=True)
    _run_protoc(root)
    for services in package.glob("*_pb2_grpc.py"):
        if "class " not in services.read_text():  # a contract without a service gets a file all the same
            services.unlink()
            services.with_suffix(".pyi").unlink()
    (package / "__init__.py").write_text(DOCSTRING)
    return package


def _run_protoc(root: Path) -> None:
    plugins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = [f"--python_out={root}", f"--grpc_python_out={root}"]
    types = [f"--mypy_out=quiet:{root}", f"--mypy_grpc_out=quiet,only_async:{root}"]
    contracts = sorted(str(contract) for contract in (PROTOS / PACKAGE).glob("*.proto"))
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", *outputs, *types, *contracts],
        env=os.environ | {"PATH": plugins},
        check=True,
    )


def drifted(committed: Path, fresh: Path) -> list[str]:
    """The names of the files that differ, or exist on one side only."""
    names = {path.name for folder in (committed, fresh) for path in folder.glob("*.py*")}
    equal, _, _ = filecmp.cmpfiles(committed, fresh, names, shallow=False)
    return sorted(names.difference(equal))


def renew(committed: Path, fresh: Path) -> None:
    """Touches only what has drifted, and only once everything could be generated."""
    committed.mkdir(parents=True, exist_ok=True)
    for name in drifted(committed, fresh):
        if (fresh / name).exists():
            shutil.copy(fresh / name, committed / name)
        else:
            (committed / name).unlink()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.stubs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what has drifted")
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="the folder above notifyqueue/ (this checkout)")
    arguments = parser.parse_args()
    committed = arguments.root / PACKAGE
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        if not arguments.check:
            renew(committed, fresh)
        names = drifted(committed, fresh)
    for name in names:
        print(f"{PACKAGE / name} is not what proto/ says: run `make stubs`")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
