"""What each of the owner's commands needs, and how their nouns are made of them: `python -m shared.admin`."""

import argparse
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Unusable(Exception):
    """The command cannot be carried out as it was given."""


def add_command(commands: Any, name: str, run: Any, purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose)
    parser.set_defaults(command=run)
    return parser


def duration(text: str) -> timedelta:
    if not (found := DURATION.fullmatch(text)) or int(found[1]) > 365_000:
        raise argparse.ArgumentTypeError("must be a number and s, m, h or d, such as 90d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


@asynccontextmanager
async def connected(settings: dict[str, str] | None = None) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url(), server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


def url() -> str:
    if found := os.environ.get("DATABASE_URL", ""):
        return found
    raise Unusable("set DATABASE_URL to the owner's login")
