"""Tenants, as the owner makes, bounds and lists them."""

import argparse
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import asyncpg
import phonenumbers

from shared.owner import Connection, Unusable, add_command, connected, duration

RATE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
NO_REGION = "none"
NO_CATEGORY = "none"
MAX_CATEGORY, MAX_REQUIRED = 64, 20
MOST = {"recipient_limit": 1_000, "accept_burst": 1_000_000}
NO_QUOTA = 0
# Of each the most, and what it says.
QUOTAS = {
    "pending": (1_000_000, "how many notifications may be pending, or none"),
    "template": (1_000_000, "how many templates it may have; none: as many as everybody"),
    "endpoint": (100, "how many endpoints it may have; none: as many as everybody"),
}
FAULTS = {  # of the constraints of tenants
    "tenants_horizon_check": "--horizon must be more than 0",
    "accept_limit_is_whole": "--accept-rate and --accept-burst go together",
    "tenants_recipient_window_check": "--recipient-window must be more than 0, and at most 31d",
    "recipient_limit_is_whole": "--recipient-limit and --recipient-window must be given together the first time",
}


async def create_tenant(connection: Connection, tenant: str) -> None:
    """Raises Unusable."""
    try:
        await connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ($1)", tenant)
    except asyncpg.UniqueViolationError:
        raise Unusable(f"there is a tenant {tenant} already") from None
    except asyncpg.CheckViolationError:
        raise Unusable("ID must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit") from None


def add_commands(commands: Any) -> None:
    create = add_command(commands, "create", _tenant_create, "make one")
    change = add_command(commands, "set", _tenant_set, "change its bounds")
    for command in (create, change):
        command.add_argument("tenant", metavar="ID")
        command.add_argument("--horizon", type=duration, help="how far ahead it may schedule, such as 365d")
        command.add_argument("--past-grace", type=duration, help="how far back a due time may lie, such as 24h")
        command.add_argument("--region", help="where telephone numbers without a country code are: GB, or none")
        command.add_argument("--accept-rate", type=_rate, help="how many requests a second it may bring in, or none")
        command.add_argument("--accept-burst", type=int, help="how many of them at once; goes with --accept-rate")
        command.add_argument("--recipient-limit", type=int, help="how many each recipient gets in a window, up to 1000")
        command.add_argument("--recipient-window", type=duration, help="how long that window is, such as 1h")
    change.add_argument(
        "--required-category",
        action="append",
        metavar="NAME",
        help="sent also to those who opted out; again for each, and all others are not; none takes them away",
    )
    for name, (_, purpose) in QUOTAS.items():
        change.add_argument(f"--{name}-quota", type=_quota, metavar="N", help=purpose)
    change.add_argument("--no-recipient-limit", action="store_true", help="each recipient gets as many as come")
    add_command(commands, "list", _tenant_list, "all of them")


def _rate(text: str) -> Decimal:
    """0 takes the limit away."""
    if text == "none":
        return Decimal(0)
    if not RATE.fullmatch(text) or not Decimal(text):
        raise argparse.ArgumentTypeError("must be above 0, with at most three decimals, such as 100 or 0.5; or none")
    return Decimal(text)


def _quota(text: str) -> int:
    """NO_QUOTA takes it away."""
    if text == "none":
        return NO_QUOTA
    if not NUMBER.fullmatch(text) or not int(text):
        raise argparse.ArgumentTypeError("must be a number above 0, or none")
    return int(text)


async def _tenant_create(chosen: argparse.Namespace) -> None:
    async with connected() as connection, connection.transaction():
        await create_tenant(connection, chosen.tenant)
        await _set_bounds(connection, chosen)
    print(f"tenant {chosen.tenant} is there")


async def _tenant_set(chosen: argparse.Namespace) -> None:
    if chosen.no_recipient_limit and (chosen.recipient_limit or chosen.recipient_window):
        raise Unusable("--no-recipient-limit must be alone, without --recipient-limit and --recipient-window")
    async with connected() as connection, connection.transaction():
        await _set_bounds(connection, chosen)
        if chosen.no_recipient_limit:
            await connection.execute(
                "UPDATE notifyqueue.tenants AS t SET recipient_limit = NULL, recipient_window = NULL WHERE t.id = $1",
                chosen.tenant,
            )
        if chosen.required_category:
            await _require(connection, chosen.tenant, chosen.required_category)
        await _set_quotas(connection, chosen)
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


async def _set_quotas(connection: Connection, chosen: argparse.Namespace) -> None:
    """What was not given stays. What is pending is counted anew: without a quota nobody has counted what went in."""
    given: Sequence[int | None] = [getattr(chosen, f"{name}_quota") for name in QUOTAS]
    for (name, (most, _)), quota in zip(QUOTAS.items(), given, strict=True):
        if quota is not None and quota > most:
            raise Unusable(f"--{name}-quota must be 1 to {most}, or none")
    await connection.execute(
        """
        UPDATE notifyqueue.tenants AS t
        SET pending_quota = nullif(coalesce($2, t.pending_quota), 0),
          template_quota = nullif(coalesce($3, t.template_quota), 0),
          endpoint_quota = nullif(coalesce($4, t.endpoint_quota), 0)
        WHERE t.id = $1
        """,
        *(chosen.tenant, *given),
    )
    if chosen.pending_quota is not None:
        await connection.execute(
            "UPDATE notifyqueue.accept_buckets AS b SET counted_at = NULL WHERE b.tenant_id = $1", chosen.tenant
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
    async with connected() as connection:
        for row in await connection.fetch(
            """
            SELECT t.id, t.horizon::text, t.past_grace::text, coalesce(t.region, 'none') AS region,
              coalesce(t.recipient_limit || ' in ' || t.recipient_window, 'none') AS recipient_limit,
              coalesce(nullif(array_to_string(t.required_categories, ', '), ''), 'none') AS required,
              coalesce(nullif(concat_ws(', ', t.pending_quota || ' pending', t.template_quota || ' templates',
                t.endpoint_quota || ' endpoints'), ''), 'none') AS quotas,
              coalesce(trim_scale(t.accept_rate) || '/s, burst ' || t.accept_burst, 'none') AS accept_rate
            FROM notifyqueue.tenants AS t ORDER BY t.id
            """
        ):
            facts = (row["id"], f"horizon {row['horizon']}", f"past grace {row['past_grace']}")
            limits = (f"recipient limit {row['recipient_limit']}", f"accept rate {row['accept_rate']}")
            more = f"quotas {row['quotas']}  required categories {row['required']}"
            print("  ".join([*facts, f"region {row['region']}", *limits, more]))
