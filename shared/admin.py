"""What the owner of the database does: `python -m shared.admin migrate | roles`, as the login of DATABASE_URL."""

import argparse
import asyncio
import os
import re
import sys

import asyncpg

from shared.migrations import MigrationError, migrate
from shared.roles import SERVICES, create_roles

PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")


class Unusable(Exception):
    """The command cannot be carried out as it was given."""


def main() -> int:
    """Exits with 0, or with 1 and one line that says what to change."""
    arguments = _parser().parse_args()
    try:
        asyncio.run(arguments.command(arguments))
    except (Unusable, MigrationError) as error:
        print(f"{arguments.name}: {error}", file=sys.stderr)
        return 1
    except (OSError, asyncpg.PostgresError) as error:
        print(f"{arguments.name}: the database refused ({type(error).__name__}): {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m shared.admin", description="Owner commands; see DATABASE_URL.")
    commands = parser.add_subparsers(dest="name", required=True)
    commands.add_parser("migrate", help="bring the schema up to date").set_defaults(command=_migrate)
    roles = commands.add_parser(
        "roles",
        help="make or renew one login per service, with passwords from NOTIFYQUEUE_<SERVICE>_PASSWORD",
    )
    roles.add_argument("--prefix", default="notifyqueue", help="the logins' names begin with it (default: %(default)s)")
    roles.set_defaults(command=_roles)
    return parser


async def _migrate(_: argparse.Namespace) -> None:
    applied = await migrate(_url())
    for migration in applied:
        print(f"applied {migration.version:04} {migration.name}")
    print("the schema is up to date")


async def _roles(arguments: argparse.Namespace) -> None:
    if not PREFIX.fullmatch(arguments.prefix):
        raise Unusable("--prefix must be a lower-case name of at most 31 characters")
    passwords = {service: os.environ.get(f"NOTIFYQUEUE_{service.upper()}_PASSWORD", "") for service in SERVICES}
    if missing := [f"NOTIFYQUEUE_{service.upper()}_PASSWORD" for service in SERVICES if not passwords[service]]:
        raise Unusable(f"set {', '.join(missing)}")
    for service, name in (await create_roles(_url(), arguments.prefix, passwords)).items():
        print(f"{service} logs in as {name}")


def _url() -> str:
    url = os.environ.get("DATABASE_URL", "")
    if not url:
        raise Unusable("set DATABASE_URL to the owner's login")
    return url


if __name__ == "__main__":
    sys.exit(main())
