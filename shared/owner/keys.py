"""API keys, as the owner makes, lists and revokes them."""

import argparse
import os
from datetime import timedelta
from typing import Any

import asyncpg

from shared.access import Role
from shared.api_keys import ApiKey
from shared.owner import Connection, Unusable, add_command, connected, duration

DISTINCT_DIGITS = 10  # 64 random ones practically never have fewer; what a person types does


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


def add_commands(commands: Any) -> None:
    create = add_command(commands, "create", _key_create, "make one; it is shown once, on the last line")
    create.add_argument("--role", required=True, type=str.upper, choices=[role.value for role in Role])
    create.add_argument("--tenant", help="whose it is; a PLATFORM key is nobody's")
    create.add_argument("--name", default="", help="what it is for, at most 255 characters")
    create.add_argument("--expires-in", type=duration, help="such as 90d (default: never)")
    create.add_argument("--from-env", metavar="NAME", help="take the key that this variable holds; for development")
    listing = add_command(commands, "list", _key_list, "what there is, without the secrets")
    listing.add_argument("--tenant", help="only this one's")
    revoke = add_command(commands, "revoke", _key_revoke, "refuse it from now on; within 10 s everywhere")
    revoke.add_argument("key_id", metavar="ID", help="the part between nq_ and the next _")


async def _key_create(chosen: argparse.Namespace) -> None:
    given = _given_key(chosen.from_env) if chosen.from_env else None
    async with connected() as connection:
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
    async with connected() as connection:
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
    async with connected() as connection:
        if not await connection.fetch(
            """
            UPDATE notifyqueue.api_keys AS k SET revoked_at = coalesce(k.revoked_at, now()) WHERE k.id = $1
            RETURNING k.id
            """,
            chosen.key_id,
        ):
            raise Unusable("there is no such key")  # it is not repeated: it may be a whole one
    print(f"key {chosen.key_id} is revoked; no process takes it for longer than 10 s")
