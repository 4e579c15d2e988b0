"""The command as it is typed."""

import argparse
import sys
from collections.abc import Callable
from datetime import timedelta

from shared.database import Executor
from shared.doctor import Bounds, as_json, diagnose, exit_code, line, repair, sql

PURPOSE = "find what stands still (exits with 3: warnings, 4: errors)"
BOUNDS = ("lease", "retention", "content_retention")

# Of the connection: nothing hangs for ever, and nothing is changed.
SESSION = {
    "application_name": "notifyqueue-doctor",
    "timezone": "UTC",
    "statement_timeout": "10s",
    "lock_timeout": "1s",
    "default_transaction_read_only": "on",
}


def add_arguments(command: argparse.ArgumentParser, *, duration: Callable[[str], timedelta]) -> None:
    command.add_argument("--json", action="store_true", help="print the findings as an array")
    command.add_argument("--repair", action="store_true", help="set the gates that are missing, as a worker would")
    for name in BOUNDS:
        said = f"--{name.replace('_', '-')}"
        command.add_argument(said, type=duration, help="where the workers' setting is not the default")


async def run(executor: Executor, chosen: argparse.Namespace) -> int:
    """Answers the exit code. What was repaired is among the findings, and said apart."""
    said = {name: getattr(chosen, name) for name in BOUNDS}
    findings = await diagnose(executor, Bounds(**{name: value for name, value in said.items() if value is not None}))
    if chosen.repair:
        await executor.fetch(sql["allow_writing"])
        print(f"gates that were missing and are set: {await repair(executor)}", file=sys.stderr)
    print(as_json(findings) if chosen.json else "\n".join(map(line, findings)) or "nothing found")
    return exit_code(findings)
