"""What stands for an address in the logs, so that support finds what became of somebody's notifications."""

import argparse
import os
from pathlib import Path
from typing import Any

from shared.owner import Unusable, add_command
from shared.pseudonym import pseudonym


def add_command_to(commands: Any) -> None:
    command = add_command(commands, "fingerprint", _fingerprint, "what stands for an address in the logs")
    command.add_argument("--tenant", required=True)
    command.add_argument("--channel", required=True, type=str.upper, choices=["EMAIL", "SMS", "PUSH"])
    command.add_argument("address", metavar="ADDRESS", help="as a notification shows it: a telephone number with its +")


async def _fingerprint(chosen: argparse.Namespace) -> None:
    """Without the database: by the key that the workers have."""
    print(pseudonym(_secret(), chosen.tenant, chosen.channel, chosen.address))


def _secret() -> bytes:
    file = os.environ.get("NOTIFYQUEUE_SECRET_KEY_FILE")
    try:
        secret = Path(file).read_text().strip() if file else os.environ.get("NOTIFYQUEUE_SECRET_KEY", "")
    except (OSError, UnicodeDecodeError):
        raise Unusable("NOTIFYQUEUE_SECRET_KEY_FILE cannot be read") from None
    if not secret:
        raise Unusable("set NOTIFYQUEUE_SECRET_KEY or NOTIFYQUEUE_SECRET_KEY_FILE, to what the workers have")
    return secret.encode()
