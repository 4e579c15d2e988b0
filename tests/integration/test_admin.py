"""What the owner does with tenants and keys, as it is typed; and the keys that `make up` keeps."""

import asyncio
import platform
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from sandbox.page import page
from sandbox.plan import Plan, make_plan
from sandbox.postgres import HOST
from sandbox.up import write_place
from shared import admin
from shared.access import Role
from shared.api_keys import ApiKey
from shared.store import Store, StoredKey
from tests.ports import ports

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answered:
    code: int
    out: list[str]
    err: list[str]


Owner = Callable[..., Awaitable[Answered]]


@pytest.fixture
async def tables(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def owner(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Owner:
    """Types a command."""
    monkeypatch.setenv("DATABASE_URL", database_url)

    async def run(*arguments: str) -> Answered:
        code = await asyncio.to_thread(admin.main, arguments)
        out, err = capsys.readouterr()
        return Answered(code, out.splitlines(), err.splitlines())

    return run


async def stored(tables: "asyncpg.Connection[asyncpg.Record]", key: ApiKey) -> StoredKey | None:
    return (await Store(tables).find_api_keys([key.id])).get(key.id)


def shown(answered: Answered) -> ApiKey:
    """The key on the last line."""
    assert answered.code == 0, answered.err
    key = ApiKey.parse(answered.out[-1])
    assert key
    return key


async def test_a_tenant_is_made_changed_and_listed(owner: Owner) -> None:
    assert (await owner("tenant", "create", "acme", "--horizon", "30d")).code == 0
    assert (await owner("tenant", "set", "acme", "--past-grace", "90m", "--region", "GB")).code == 0
    assert (await owner("tenant", "set", "acme", "--recipient-limit", "3", "--recipient-window", "1h")).code == 0
    assert (await owner("tenant", "set", "acme", "--recipient-limit", "5")).code == 0
    required = ("--required-category", "resets", "--required-category", "receipts")
    assert (await owner("tenant", "set", "acme", *required)).code == 0
    quotas = ("--pending-quota", "1000", "--template-quota", "20", "--endpoint-quota", "3")
    assert (await owner("tenant", "set", "acme", *quotas)).code == 0
    assert (await owner("tenant", "set", "acme", "--template-quota", "none")).code == 0
    listed = [line.split("  required categories ") for line in (await owner("tenant", "list")).out]
    assert [required for _, required in listed] == ["receipts, resets", "none"]
    halves = [line.split("  quotas ") for line, _ in listed]
    assert [quotas for _, quotas in halves] == ["1000 pending, 3 endpoints", "none"]
    assert [line for line, _ in halves] == [
        "acme  horizon 30 days  past grace 01:30:00  region GB  recipient limit 5 in 01:00:00  accept rate none",
        "default  horizon 365 days  past grace 24:00:00  region none  recipient limit none  accept rate none",
    ]


async def test_a_tenants_region_is_taken_back(owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]") -> None:
    for region, stored_ in (("GB", "GB"), ("none", None), ("none", None), ("FR", "FR")):
        assert (await owner("tenant", "set", "default", "--region", region)).code == 0
        assert await tables.fetchval("SELECT region FROM notifyqueue.tenants") == stored_
    assert (await owner("tenant", "set", "default", "--horizon", "1d")).code == 0
    assert await tables.fetchval("SELECT region FROM notifyqueue.tenants") == "FR"


@pytest.mark.parametrize("command", [("migrate",), ("tenant", "list")])
@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://owner:hunter2@127.0.0.1/nothing",
        "postgresql://owner:hun/ter2@127.0.0.1:5432/nothing",
        "postgresql://owner:hunter2@127.0.0.1:port/nothing",
        "postgresql://owner:hunter2@[127.0.0.1/nothing",
        "postgresql://owner:hunter2@127.0.0.1/nothing?sslmode=maybe",
    ],
)
async def test_a_url_that_is_none_is_one_line_without_the_password(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, url: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    answered = await owner(*command)
    assert (answered.code, answered.out) == (1, [])
    (line,) = answered.err
    assert line.startswith(f"{command[0]}: DATABASE_URL cannot be used")
    assert "hun" not in line
    assert "ter2" not in line


async def test_a_tenants_limit_is_set_changed_and_taken_away(owner: Owner) -> None:
    async def rate_after(*arguments: str) -> str:
        answered = await owner("tenant", "set", "default", *arguments)
        assert answered.code == 0, answered.err
        (line,) = (await owner("tenant", "list")).out
        return line.partition("  accept rate ")[2].partition("  quotas ")[0]

    assert await rate_after("--accept-rate", "100", "--accept-burst", "200") == "100/s, burst 200"
    assert await rate_after("--region", "GB") == "100/s, burst 200"
    assert await rate_after("--accept-rate", "0.5") == "0.5/s, burst 200"
    assert await rate_after("--accept-burst", "1") == "0.5/s, burst 1"
    assert await rate_after("--accept-rate", "none") == "none"


@pytest.mark.parametrize("quota", ["", "0", "-1", "1e3", "9999999999", "٣"])
def test_a_quota_is_a_number_above_0(quota: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        admin.main(["tenant", "set", "default", f"--pending-quota={quota}"])
    assert "or none" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["", "0", "0.000", "-1", "1e3", "1.2345", "1000000", "NaN", "٣"])
def test_a_rate_is_a_number_with_three_decimals(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        admin.main(["tenant", "set", "default", f"--accept-rate={rate}"])
    assert "or none" in capsys.readouterr().err


async def test_a_key_is_shown_once_and_stored_as_its_hash(
    owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    key = shown(await owner("key", "create", "--tenant", "default", "--role", "sender", "--name", "billing"))
    row = await stored(tables, key)
    assert row
    assert (row.caller.tenant, row.caller.role, row.good_for) == ("default", Role.SENDER, None)
    assert row.secret_hash == key.secret_hash()
    everything = await tables.fetchval("SELECT k::text FROM notifyqueue.api_keys AS k")
    assert key.secret not in everything
    assert key.secret not in "".join((await owner("key", "list")).out)


async def test_a_platform_key_has_no_tenant(owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]") -> None:
    row = await stored(tables, shown(await owner("key", "create", "--role", "PLATFORM")))
    assert row
    assert (row.caller.tenant, row.caller.role) == (None, Role.PLATFORM)


async def test_a_key_expires_when_it_was_told_to(owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]") -> None:
    create = ("key", "create", "--tenant", "default", "--role", "ADMIN", "--expires-in")
    row = await stored(tables, shown(await owner(*create, "90d")))
    assert row
    assert row.good_for
    assert timedelta(days=89) < row.good_for < timedelta(days=90)
    assert await stored(tables, shown(await owner(*create, "0s"))) is None


async def test_a_revoked_key_is_good_no_more_and_stays_listed(
    owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    key = shown(await owner("key", "create", "--tenant", "default", "--role", "ADMIN", "--name", "mine"))
    for _ in range(2):
        assert (await owner("key", "revoke", key.id)).code == 0
    assert await stored(tables, key) is None
    (line,) = (await owner("key", "list", "--tenant", "default")).out
    assert line.startswith(f"{key.id}  ADMIN     default  ")
    assert line.endswith("revoked  mine")
    assert (await owner("key", "list", "--tenant", "other")).out == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("tenant", "create", "default"), "tenant: there is a tenant default already"),
        (("tenant", "create", "A b"), "tenant: ID must be 1 to 63 of a-z, 0-9, _ and -"),
        (("tenant", "create", "acme", "--horizon", "0s"), "tenant: --horizon must be more than 0"),
        *(
            (("tenant", "create", "acme", "--region", region), "tenant: --region must be two capital letters")
            for region in ("gb", "UK", "XX", "GBR", "001", "None", "")
        ),
        (("tenant", "set", "acme"), "tenant: there is no tenant acme"),
        (("tenant", "set", "default", "--accept-rate", "1"), "tenant: --accept-rate and --accept-burst go together"),
        (("tenant", "set", "default", "--accept-rate=none", "--accept-burst=1"), "tenant: --accept-rate and"),
        (("tenant", "set", "default", "--accept-rate=1", "--accept-burst=0"), "tenant: --accept-burst must be 1 to"),
        (("tenant", "set", "default", "--accept-rate=1", "--accept-burst=9999999999"), "tenant: --accept-burst must"),
        (
            ("tenant", "set", "default", "--recipient-limit", "3"),
            "tenant: --recipient-limit and --recipient-window must",
        ),
        (("tenant", "create", "acme", "--recipient-limit", "99999"), "tenant: --recipient-limit must be 1 to 1000"),
        (
            ("tenant", "set", "default", "--recipient-limit", "3", "--recipient-window", "32d"),
            "tenant: --recipient-window must be more than 0",
        ),
        (
            ("tenant", "set", "default", "--required-category", "none", "--required-category", "a"),
            "tenant: --required-category must be given at most 20 times",
        ),
        (
            ("tenant", "set", "default", "--required-category", "a" * 65),
            "tenant: --required-category must have 1 to 64",
        ),
        (
            ("tenant", "set", "default", "--endpoint-quota", "101"),
            "tenant: --endpoint-quota must be 1 to 100, or none",
        ),
        (
            ("tenant", "set", "default", "--no-recipient-limit", "--recipient-limit", "3"),
            "tenant: --no-recipient-limit must be alone",
        ),
        (("key", "create", "--role", "ADMIN"), "key: --tenant must be given"),
        (("key", "create", "--role", "PLATFORM", "--tenant", "default"), "key: --tenant must be given, except"),
        (("key", "create", "--role", "ADMIN", "--tenant", "acme"), "key: there is no tenant acme"),
        (("key", "create", "--role", "PLATFORM", "--name", "x" * 256), "key: --name must have at most"),
        (("key", "revoke", "nq_0123456789ab_secret"), "key: there is no such key"),
    ],
)
async def test_what_cannot_be_done_is_one_clear_line(
    owner: Owner, tables: "asyncpg.Connection[asyncpg.Record]", arguments: tuple[str, ...], problem: str
) -> None:
    answered = await owner(*arguments)
    (line,) = answered.err
    assert (answered.code, answered.out, line.startswith(problem)) == (1, [], True), line
    assert "nq_" not in line
    assert await tables.fetchval("SELECT count(*) FROM notifyqueue.tenants") == 1


@pytest.mark.parametrize("duration", ["", "1", "d", "-1d", "1w", "1.5h", "٣d", "999999d"])
def test_a_duration_is_a_number_and_a_unit(duration: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        admin.main(["key", "create", "--role", "PLATFORM", f"--expires-in={duration}"])
    assert "such as 90d" in capsys.readouterr().err


def test_the_command_is_a_module(database_url: str) -> None:
    command = [sys.executable, "-m", "shared.admin", "key", "create", "--role", "PLATFORM"]
    done = subprocess.run(command, cwd=ROOT, env={"DATABASE_URL": database_url}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ApiKey.parse(done.stdout.splitlines()[-1])


DEVELOPMENT_KEY = "nq_de0de0de0de0_" + "0123456789abcdef" * 4


async def test_a_given_key_is_taken_and_taken_again_unless_it_is_another_one(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ("key", "create", "--tenant", "default", "--from-env", "DEVELOPMENT_KEY", "--role")
    monkeypatch.setenv("DEVELOPMENT_KEY", DEVELOPMENT_KEY)
    for _ in range(2):
        assert shown(await owner(*create, "ADMIN")).reveal() == DEVELOPMENT_KEY
    assert (await owner(*create, "SENDER")).code == 1
    monkeypatch.setenv("DEVELOPMENT_KEY", DEVELOPMENT_KEY[:-1] + "0")
    assert (await owner(*create, "ADMIN")).code == 1
    monkeypatch.setenv("DEVELOPMENT_KEY", DEVELOPMENT_KEY)
    assert (await owner("key", "revoke", "de0de0de0de0")).code == 0
    assert (await owner(*create, "ADMIN")).err == [
        "key: there is a key de0de0de0de0 already, which is not what this asks for, or is revoked"
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), ("--expires-in", "90d")),
        (("--expires-in", "90d"), ()),
        (("--expires-in", "90d"), ("--expires-in", "90d")),
        (("--expires-in", "0s"), ()),
        (("--name", "mine"), ()),
        ((), ("--name", "mine")),
    ],
)
async def test_a_given_key_that_is_there_otherwise_than_asked_for_is_refused(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    create = ("key", "create", "--tenant", "default", "--from-env", "DEVELOPMENT_KEY", "--role", "ADMIN")
    monkeypatch.setenv("DEVELOPMENT_KEY", DEVELOPMENT_KEY)
    assert shown(await owner(*create, *first)).reveal() == DEVELOPMENT_KEY
    refused = await owner(*create, *second)
    assert (refused.code, refused.out, len(refused.err)) == (1, [], 1)


@pytest.mark.parametrize("weak", ["", "secret", "nq_de0de0de0de0_" + "0" * 64, DEVELOPMENT_KEY.upper()])
async def test_a_given_key_that_could_be_guessed_is_refused_and_not_repeated(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, weak: str
) -> None:
    monkeypatch.setenv("DEVELOPMENT_KEY", weak)
    refused = await owner("key", "create", "--role", "ADMIN", "--tenant", "default", "--from-env", "DEVELOPMENT_KEY")
    assert (refused.code, refused.out, len(refused.err)) == (1, [], 1)
    assert not weak or weak not in refused.err[0]


# The keys and ports of `make up`.


def keys(plan: Plan) -> tuple[str, str]:
    return plan.key, plan.platform_key


async def test_make_up_keeps_its_keys_for_its_owner_alone_and_shows_them(database_url: str, tmp_path: Path) -> None:
    first = await make_plan(tmp_path, database_url)
    assert keys(await make_plan(tmp_path, database_url)) == keys(first)
    for name, key in zip(("key", "platform_key"), keys(first), strict=True):
        assert (tmp_path / name).read_text() == key
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert key in page(first)


async def test_make_up_makes_keys_anew_that_the_database_does_not_take(
    database_url: str, tmp_path: Path, tables: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    first = await make_plan(tmp_path, database_url)
    await tables.execute("UPDATE notifyqueue.api_keys SET revoked_at = now() WHERE role = 'ADMIN'")
    (tmp_path / "platform_key").write_text("nonsense")
    second = await make_plan(tmp_path, database_url)
    assert not set(keys(first)) & set(keys(second))
    for text, role in zip(keys(second), (Role.ADMIN, Role.PLATFORM), strict=True):
        key = ApiKey.parse(text)
        assert key
        row = await stored(tables, key)
        assert row
        assert (row.caller.role, row.secret_hash) == (role, key.secret_hash())


async def test_where_make_up_is_can_be_read_whole_at_any_time(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, place = await make_plan(tmp_path, database_url), tmp_path / "up.json"
    while_written: list[str | None] = []
    write = Path.write_text

    def watched(file: Path, text: str) -> int:
        file.touch()
        while_written.append(place.read_text() if place.exists() else None)
        return write(file, text)

    monkeypatch.setattr(Path, "write_text", watched)
    write_place(plan, {})
    first = place.read_text()
    write_place(plan, {})
    assert while_written == [None, first]
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere two may not bind one port")
async def test_make_up_keeps_its_ports_for_those_who_serve_there(database_url: str, tmp_path: Path) -> None:
    async with ports():
        port = (await make_plan(tmp_path, database_url)).ports["smtp"]
        with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
            somebody.bind((HOST, port))
        socket.create_server((HOST, port)).close()


async def test_make_up_takes_another_port_where_somebody_listens(database_url: str, tmp_path: Path) -> None:
    async with ports():
        port = (await make_plan(tmp_path, database_url)).ports["smtp"]
        with socket.create_server((HOST, port)):
            other = (await make_plan(tmp_path, database_url)).ports["smtp"]
        assert other not in (0, port)
        socket.create_server((HOST, other)).close()
