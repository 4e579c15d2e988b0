"""The command line: `notifyqueue`, over gRPC and nothing else. docs/cli.md says how it is used."""

import sys

EXTRA = {"typer", "rich"}


def main() -> None:
    """Runs it with the arguments of this process, and ends the process with its exit code."""
    try:
        from notifyqueue.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRA:
            raise
        print("notifyqueue: the command line needs more packages: pip install 'notifyqueue[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before there is anything to interrupt
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
