"""What the owner of the database does, as the login of DATABASE_URL: `python -m shared.admin`.

migrate · roles · tenant create, set, list · key create, list, revoke · purge · doctor · fingerprint
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import asyncpg

from shared.doctor import command as doctor
from shared.migrations import MigrationError, migrate
from shared.owner import DURATION, Unusable, add_command, connected, duration, fingerprint, keys, tenants, url
from shared.purge import purge
from shared.roles import SERVICES, create_roles

PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exits with 0, or with 1 and one line that says what to change; the doctor, with what it found."""
    chosen = _parser().parse_args(arguments)
    try:
        return asyncio.run(chosen.command(chosen)) or 0
    except (Unusable, MigrationError) as error:
        print(f"{chosen.noun}: {error}", file=sys.stderr)
        return 1
    except (asyncpg.InterfaceError, ValueError) as error:  # whose words may have the password in them
        print(f"{chosen.noun}: DATABASE_URL cannot be used ({type(error).__name__})", file=sys.stderr)
        return 1
    except (OSError, asyncpg.PostgresError) as error:
        print(f"{chosen.noun}: the database refused ({type(error).__name__}): {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m shared.admin", description="Owner commands; see DATABASE_URL.")
    commands = parser.add_subparsers(dest="noun", required=True)
    add_command(commands, "migrate", _migrate, "bring the schema up to date")
    roles = add_command(
        commands,
        "roles",
        _roles,
        "make or renew one login per service, with passwords from NOTIFYQUEUE_<SERVICE>_PASSWORD",
    )
    roles.add_argument("--prefix", default="notifyqueue", help="the logins' names begin with it (default: %(default)s)")
    tenants.add_commands(commands.add_parser("tenant", help="who there is").add_subparsers(required=True))
    keys.add_commands(commands.add_parser("key", help="who may call").add_subparsers(required=True))
    _add_purge(add_command(commands, "purge", _purge, "remove dead notifications, with all that is about them"))
    fingerprint.add_command_to(commands)
    doctor.add_arguments(add_command(commands, "doctor", _doctor, doctor.PURPOSE), duration=duration)
    return parser


def _add_purge(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tenant", required=True, help="whose they are")
    command.add_argument("--status", required=True, type=str.upper, choices=["FAILED", "DEAD_LETTERED"])
    command.add_argument("--before", required=True, type=_before, help="when they ended: 2026-01-31T00:00Z, or 90d ago")
    command.add_argument("--dry-run", action="store_true", help="count what would go")


def _before(text: str) -> datetime | timedelta:
    if DURATION.fullmatch(text):
        return duration(text)
    with suppress(ValueError):
        instant = datetime.fromisoformat(text)
        if instant.tzinfo:
            return instant
    raise argparse.ArgumentTypeError("must be a time with its zone, 2026-01-31T00:00Z, or an age, 90d")


async def _migrate(_: argparse.Namespace) -> None:
    applied = await migrate(url())
    for migration in applied:
        print(f"applied {migration.version:04} {migration.name}")
    print("the schema is up to date")


async def _roles(chosen: argparse.Namespace) -> None:
    if not PREFIX.fullmatch(chosen.prefix):
        raise Unusable("--prefix must be a lower-case name of at most 31 characters")
    passwords = {service: os.environ.get(f"NOTIFYQUEUE_{service.upper()}_PASSWORD", "") for service in SERVICES}
    if missing := [f"NOTIFYQUEUE_{service.upper()}_PASSWORD" for service in SERVICES if not passwords[service]]:
        raise Unusable(f"set {', '.join(missing)}")
    for service, name in (await create_roles(url(), chosen.prefix, passwords)).items():
        print(f"{service} logs in as {name}")


async def _purge(chosen: argparse.Namespace) -> None:
    async with connected() as connection:
        done = await purge(connection, chosen.tenant, chosen.status, chosen.before, dry_run=chosen.dry_run)
    print(f"{'would purge' if chosen.dry_run else 'purged'} {_notifications(done.removed)}")
    if done.being_reported:
        print(f"left {_notifications(done.being_reported)} whose webhooks are under way: run it again later")


async def _doctor(chosen: argparse.Namespace) -> int:
    async with connected(doctor.SESSION) as connection:
        return await doctor.run(connection, chosen)


def _notifications(count: int) -> str:
    return f"{count} notification{'' if count == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main())
