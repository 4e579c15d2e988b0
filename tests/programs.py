"""Programs that some tests need and a machine may lack: a skip says which, and a full check tolerates none."""

import os
from pathlib import Path

import pytest

# Debian's package of that name: what it lays before a program's clock.
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def require_program(name: str, path: Path | None) -> Path:
    """The program, or the test ends here: skipped, and failed where `CI` says that everything is installed."""
    if path is not None and path.exists():
        return path
    missing = f"{name} is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
