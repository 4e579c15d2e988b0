"""What the owner of the database does, as the login of DATABASE_URL: `python -m shared.admin`.

migrate · roles · tenant create, set, list · key create, list, revoke · purge · doctor · fingerprint
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import phonenumbers

from shared.access import Role
from shared.api_keys import ApiKey
from shared.doctor import command as doctor
from shared.migrations import MigrationError, migrate
from shared.pseudonym import pseudonym
from shared.purge import purge
from shared.roles import SERVICES, create_roles

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")
RATE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?", re.ASCII)
DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
DISTINCT_DIGITS = 10  # 64 random ones practically never have fewer; what a person types does
NO_REGION = "none"
NO_CATEGORY = "none"
MAX_CATEGORY, MAX_REQUIRED = 64, 20
MOST = {"recipient_limit": 1_000, "accept_burst": 1_000_000}
FAULTS = {  # of the constraints of tenants
    "tenants_horizon_check": "--horizon must be more than 0",
    "accept_limit_is_whole": "--accept-rate and --accept-burst go together",
    "tenants_recipient_window_check": "--recipient-window must be more than 0, and at most 31d",
    "recipient_limit_is_whole": "--recipient-limit and --recipient-window must be given together the first time",
}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Unusable(Exception):
    """The command cannot be carried out as it was given."""


async def create_tenant(connection: Connection, tenant: str) -> None:
    """Raises Unusable."""
    try:
        await connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ($1)", tenant)
    except asyncpg.UniqueViolationError:
        raise Unusable(f"there is a tenant {tenant} already") from None
    except asyncpg.CheckViolationError:
        raise Unusable("ID must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit") from None


async def create_key(
    connection: Connection,
    role: Role,
    tenant: str | None,
    *,
    name: str = "",
    expires_in: timedelta | None = None,
    given: ApiKey | None = None,
) -> ApiKey:
    """The only time that the key is to be had, unless it was `given`. Raises Unusable."""
    if (tenant is None) != (role is Role.PLATFORM):
        raise Unusable("--tenant must be given, except for the role PLATFORM, which has none")
    key = given or ApiKey.new()
    try:
        await connection.execute(
            """
            INSERT INTO notifyqueue.api_keys (id, tenant_id, role, secret_hash, name, expires_at)
            VALUES ($1, $2, $3, $4, $5, now() + $6::interval)
            """,
            *(key.id, tenant, role.value, key.secret_hash(), name, expires_in),
        )
    except asyncpg.UniqueViolationError:
        if expires_in is not None or not await _is_stored(connection, key, role, tenant, name):
            raise Unusable(f"there is a key {key.id} already, which is not what this asks for, or is revoked") from None
    except asyncpg.ForeignKeyViolationError:
        raise Unusable(f"there is no tenant {tenant}") from None
    except asyncpg.CheckViolationError:
        raise Unusable("--name must have at most 255 characters") from None
    return key


async def _is_stored(connection: Connection, key: ApiKey, role: Role, tenant: str | None, name: str) -> bool:
    """Just so, and for ever."""
    found = await connection.fetchval(
        """
        SELECT count(*) FROM notifyqueue.api_keys AS k
        WHERE k.id = $1 AND k.secret_hash = $2 AND k.role = $3 AND k.tenant_id IS NOT DISTINCT FROM $4
          AND k.name = $5 AND k.expires_at IS NULL AND k.revoked_at IS NULL
        """,
        *(key.id, key.secret_hash(), role.value, tenant, name),
    )
    return bool(found)


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
    _command(commands, "migrate", _migrate, "bring the schema up to date")
    roles = _command(
        commands,
        "roles",
        _roles,
        "make or renew one login per service, with passwords from NOTIFYQUEUE_<SERVICE>_PASSWORD",
    )
    roles.add_argument("--prefix", default="notifyqueue", help="the logins' names begin with it (default: %(default)s)")
    _add_tenants(commands.add_parser("tenant", help="who there is").add_subparsers(required=True))
    _add_keys(commands.add_parser("key", help="who may call").add_subparsers(required=True))
    _add_purge(_command(commands, "purge", _purge, "remove dead notifications, with all that is about them"))
    _add_fingerprint(_command(commands, "fingerprint", _fingerprint, "what stands for an address in the logs"))
    doctor.add_arguments(_command(commands, "doctor", _doctor, doctor.PURPOSE), duration=_duration)
    return parser


def _add_fingerprint(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tenant", required=True)
    command.add_argument("--channel", required=True, type=str.upper, choices=["EMAIL", "SMS", "PUSH"])
    command.add_argument("address", metavar="ADDRESS", help="as a notification shows it: a telephone number with its +")


def _add_tenants(commands: Any) -> None:
    create = _command(commands, "create", _tenant_create, "make one")
    change = _command(commands, "set", _tenant_set, "change its bounds")
    for command in (create, change):
        command.add_argument("tenant", metavar="ID")
        command.add_argument("--horizon", type=_duration, help="how far ahead it may schedule, such as 365d")
        command.add_argument("--past-grace", type=_duration, help="how far back a due time may lie, such as 24h")
        command.add_argument("--region", help="where telephone numbers without a country code are: GB, or none")
        command.add_argument("--accept-rate", type=_rate, help="how many requests a second it may bring in, or none")
        command.add_argument("--accept-burst", type=int, help="how many of them at once; goes with --accept-rate")
        command.add_argument("--recipient-limit", type=int, help="how many each recipient gets in a window, up to 1000")
        command.add_argument("--recipient-window", type=_duration, help="how long that window is, such as 1h")
    change.add_argument(
        "--required-category",
        action="append",
        metavar="NAME",
        help="sent also to those who opted out; again for each, and all others are not; none takes them away",
    )
    change.add_argument("--no-recipient-limit", action="store_true", help="each recipient gets as many as come")
    _command(commands, "list", _tenant_list, "all of them")


def _add_keys(commands: Any) -> None:
    create = _command(commands, "create", _key_create, "make one; it is shown once, on the last line")
    create.add_argument("--role", required=True, type=str.upper, choices=[role.value for role in Role])
    create.add_argument("--tenant", help="whose it is; a PLATFORM key is nobody's")
    create.add_argument("--name", default="", help="what it is for, at most 255 characters")
    create.add_argument("--expires-in", type=_duration, help="such as 90d (default: never)")
    create.add_argument("--from-env", metavar="NAME", help="take the key that this variable holds; for development")
    listing = _command(commands, "list", _key_list, "what there is, without the secrets")
    listing.add_argument("--tenant", help="only this one's")
    revoke = _command(commands, "revoke", _key_revoke, "refuse it from now on; within 10 s everywhere")
    revoke.add_argument("key_id", metavar="ID", help="the part between nq_ and the next _")


def _add_purge(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tenant", required=True, help="whose they are")
    command.add_argument("--status", required=True, type=str.upper, choices=["FAILED", "DEAD_LETTERED"])
    command.add_argument("--before", required=True, type=_before, help="when they ended: 2026-01-31T00:00Z, or 90d ago")
    command.add_argument("--dry-run", action="store_true", help="count what would go")


def _command(commands: Any, name: str, run: Any, purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose)
    parser.set_defaults(command=run)
    return parser


def _duration(text: str) -> timedelta:
    if not (found := DURATION.fullmatch(text)) or int(found[1]) > 365_000:
        raise argparse.ArgumentTypeError("must be a number and s, m, h or d, such as 90d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _rate(text: str) -> Decimal:
    """0 takes the limit away."""
    if text == "none":
        return Decimal(0)
    if not RATE.fullmatch(text) or not Decimal(text):
        raise argparse.ArgumentTypeError("must be above 0, with at most three decimals, such as 100 or 0.5; or none")
    return Decimal(text)


def _before(text: str) -> datetime | timedelta:
    if DURATION.fullmatch(text):
        return _duration(text)
    with suppress(ValueError):
        instant = datetime.fromisoformat(text)
        if instant.tzinfo:
            return instant
    raise argparse.ArgumentTypeError("must be a time with its zone, 2026-01-31T00:00Z, or an age, 90d")


async def _migrate(_: argparse.Namespace) -> None:
    applied = await migrate(_url())
    for migration in applied:
        print(f"applied {migration.version:04} {migration.name}")
    print("the schema is up to date")


async def _roles(chosen: argparse.Namespace) -> None:
    if not PREFIX.fullmatch(chosen.prefix):
        raise Unusable("--prefix must be a lower-case name of at most 31 characters")
    passwords = {service: os.environ.get(f"NOTIFYQUEUE_{service.upper()}_PASSWORD", "") for service in SERVICES}
    if missing := [f"NOTIFYQUEUE_{service.upper()}_PASSWORD" for service in SERVICES if not passwords[service]]:
        raise Unusable(f"set {', '.join(missing)}")
    for service, name in (await create_roles(_url(), chosen.prefix, passwords)).items():
        print(f"{service} logs in as {name}")


async def _tenant_create(chosen: argparse.Namespace) -> None:
    async with _connected() as connection, connection.transaction():
        await create_tenant(connection, chosen.tenant)
        await _set_bounds(connection, chosen)
    print(f"tenant {chosen.tenant} is there")


async def _tenant_set(chosen: argparse.Namespace) -> None:
    if chosen.no_recipient_limit and (chosen.recipient_limit or chosen.recipient_window):
        raise Unusable("--no-recipient-limit must be alone, without --recipient-limit and --recipient-window")
    async with _connected() as connection, connection.transaction():
        await _set_bounds(connection, chosen)
        if chosen.no_recipient_limit:
            await connection.execute(
                "UPDATE notifyqueue.tenants AS t SET recipient_limit = NULL, recipient_window = NULL WHERE t.id = $1",
                chosen.tenant,
            )
        if chosen.required_category:
            await _require(connection, chosen.tenant, chosen.required_category)
        await _look_at_gates(connection, chosen.tenant)
    print(f"tenant {chosen.tenant} is set")


async def _require(connection: Connection, tenant: str, categories: Sequence[str]) -> None:
    """An opt-out from these holds for nobody. `none` alone: there are none."""
    named = [] if list(categories) == [NO_CATEGORY] else sorted(set(categories))
    if NO_CATEGORY in named or len(named) > MAX_REQUIRED:
        raise Unusable(f"--required-category must be given at most {MAX_REQUIRED} times, or once as none")
    if not all(name.isprintable() and 1 <= len(name) <= MAX_CATEGORY for name in named):
        raise Unusable(f"--required-category must have 1 to {MAX_CATEGORY} printable characters")
    await connection.execute(
        "UPDATE notifyqueue.tenants AS t SET required_categories = $2 WHERE t.id = $1", tenant, named
    )


async def _look_at_gates(connection: Connection, tenant: str) -> None:
    """There may be room by the new limit where there was none by the old one, by which nobody may be deciding still."""
    await connection.execute("LOCK TABLE notifyqueue.recipient_gates IN EXCLUSIVE MODE")
    await connection.execute(
        "UPDATE notifyqueue.recipient_gates AS g SET opens_at = now() WHERE g.tenant_id = $1", tenant
    )


async def _set_bounds(connection: Connection, chosen: argparse.Namespace) -> None:
    """What was not given stays as it is."""
    if chosen.region not in (None, NO_REGION, *phonenumbers.SUPPORTED_REGIONS):
        raise Unusable("--region must be two capital letters that name a region, such as GB, or none")
    for name, most in MOST.items():
        value: int | None = getattr(chosen, name)
        if value is not None and not 1 <= value <= most:
            raise Unusable(f"--{name.replace('_', '-')} must be 1 to {most}")
    try:
        changed = await connection.fetch(
            """
            UPDATE notifyqueue.tenants AS t
            SET horizon = coalesce($2, t.horizon), past_grace = coalesce($3, t.past_grace),
              region = nullif(coalesce($4, t.region), $5),
              accept_rate = nullif(coalesce($6, t.accept_rate), 0),
              accept_burst = CASE WHEN $6 = 0 THEN $7 ELSE coalesce($7, t.accept_burst) END,
              recipient_limit = coalesce($8, t.recipient_limit),
              recipient_window = coalesce($9, t.recipient_window)
            WHERE t.id = $1
            RETURNING t.id
            """,
            *(chosen.tenant, chosen.horizon, chosen.past_grace, chosen.region, NO_REGION),
            *(chosen.accept_rate, chosen.accept_burst, chosen.recipient_limit, chosen.recipient_window),
        )
    except asyncpg.CheckViolationError as error:
        raise Unusable(FAULTS[error.constraint_name or ""]) from None
    if not changed:
        raise Unusable(f"there is no tenant {chosen.tenant}")


async def _tenant_list(_: argparse.Namespace) -> None:
    async with _connected() as connection:
        for row in await connection.fetch(
            """
            SELECT t.id, t.horizon::text, t.past_grace::text, coalesce(t.region, 'none') AS region,
              coalesce(t.recipient_limit || ' in ' || t.recipient_window, 'none') AS recipient_limit,
              coalesce(nullif(array_to_string(t.required_categories, ', '), ''), 'none') AS required,
              coalesce(trim_scale(t.accept_rate) || '/s, burst ' || t.accept_burst, 'none') AS accept_rate
            FROM notifyqueue.tenants AS t ORDER BY t.id
            """
        ):
            facts = (row["id"], f"horizon {row['horizon']}", f"past grace {row['past_grace']}")
            limits = (f"recipient limit {row['recipient_limit']}", f"accept rate {row['accept_rate']}")
            more = f"required categories {row['required']}"
            print("  ".join([*facts, f"region {row['region']}", *limits, more]))


async def _key_create(chosen: argparse.Namespace) -> None:
    given = _given_key(chosen.from_env) if chosen.from_env else None
    async with _connected() as connection:
        key = await create_key(
            connection, Role(chosen.role), chosen.tenant, name=chosen.name, expires_in=chosen.expires_in, given=given
        )
    print(f"key {key.id}, {chosen.role} of {chosen.tenant or 'the platform'}; nobody can show it again:")
    print(key.reveal())


def _given_key(variable: str) -> ApiKey:
    key = ApiKey.parse(os.environ.get(variable, ""))
    if key is None or len(set(key.secret)) < DISTINCT_DIGITS:
        raise Unusable(f"{variable} must be nq_, 12 hexadecimal digits, _ and 64 random ones, all in lower case")
    return key


async def _key_list(chosen: argparse.Namespace) -> None:
    async with _connected() as connection:
        for row in await connection.fetch(
            """
            SELECT k.id, k.role, coalesce(k.tenant_id, '-') AS tenant, k.name,
              to_char(k.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') AS made,
              CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired'
                WHEN k.expires_at IS NULL THEN 'good'
                ELSE to_char(k.expires_at AT TIME ZONE 'UTC', '"good until" YYYY-MM-DD"T"HH24:MI"Z"')
              END AS standing
            FROM notifyqueue.api_keys AS k
            WHERE $1::text IS NULL OR k.tenant_id = $1
            ORDER BY k.tenant_id, k.created_at, k.id
            """,
            chosen.tenant,
        ):
            facts = (row["id"], f"{row['role']:<8}", row["tenant"], row["made"], row["standing"], row["name"])
            print("  ".join(facts).rstrip())


async def _key_revoke(chosen: argparse.Namespace) -> None:
    async with _connected() as connection:
        if not await connection.fetch(
            """
            UPDATE notifyqueue.api_keys AS k SET revoked_at = coalesce(k.revoked_at, now()) WHERE k.id = $1
            RETURNING k.id
            """,
            chosen.key_id,
        ):
            raise Unusable("there is no such key")  # it is not repeated: it may be a whole one
    print(f"key {chosen.key_id} is revoked; no process takes it for longer than 10 s")


async def _purge(chosen: argparse.Namespace) -> None:
    async with _connected() as connection:
        done = await purge(connection, chosen.tenant, chosen.status, chosen.before, dry_run=chosen.dry_run)
    print(f"{'would purge' if chosen.dry_run else 'purged'} {_notifications(done.removed)}")
    if done.being_reported:
        print(f"left {_notifications(done.being_reported)} whose webhooks are under way: run it again later")


async def _doctor(chosen: argparse.Namespace) -> int:
    async with _connected(doctor.SESSION) as connection:
        return await doctor.run(connection, chosen)


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


def _notifications(count: int) -> str:
    return f"{count} notification{'' if count == 1 else 's'}"


@asynccontextmanager
async def _connected(settings: dict[str, str] | None = None) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(_url(), server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


def _url() -> str:
    url = os.environ.get("DATABASE_URL", "")
    if not url:
        raise Unusable("set DATABASE_URL to the owner's login")
    return url


if __name__ == "__main__":
    sys.exit(main())
