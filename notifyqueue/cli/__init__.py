"""The command line: `notifyqueue`, over gRPC and nothing else. docs/cli.md says how it is used."""

import gc
import os
import sys
from importlib.util import find_spec

EXTRA = ("typer", "rich")
GARBAGE = 50_000  # objects that are made, and not given back, before any is looked at: what is imported stays


def main() -> None:
    """Runs it with the arguments of this process, and ends the process with its exit code."""
    # Before gRPC is imported, which then reads it: what goes wrong is one line of ours, and none of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if not all(find_spec(name) for name in EXTRA):
        print("notifyqueue: the command line needs more packages: pip install 'notifyqueue[cli]'", file=sys.stderr)
        sys.exit(2)
    gc.set_threshold(GARBAGE)
    try:
        from notifyqueue.cli.app import run
    except KeyboardInterrupt:  # before there is anything to interrupt
        sys.exit(130)
    code = run(sys.argv[1:])
    gc.freeze()  # or Python looks through all of it once more before it ends: a fifth of what a command takes
    sys.exit(code)
