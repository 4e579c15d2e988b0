"""What `make up` decides before it starts anything: ports, secrets, API keys, a database login for each process."""

import base64
import hashlib
import hmac
import platform
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from sandbox import accounts, service_account
from sandbox.postgres import HOST
from shared.access import Role
from shared.api_keys import ApiKey
from shared.migrations import migrate
from shared.owner.keys import create_key
from shared.roles import SERVICES, create_login, create_roles
from shared.store import Store

SENDER = "Notify Queue <notifyqueue@example.com>"
TENANT = "default"

Settings = Mapping[str, Mapping[str, str]]
"""By process, without the prefix."""

NO_SETTINGS: Settings = MappingProxyType({})

# What people type, and the README shows. Where another checkout has one already, a free one is taken.
PORTS = {
    "scheduler": 50051,
    "worker": 50052,
    "dispatcher": 50053,
    "scheduler health": 50061,
    "worker health": 50062,
    "dispatcher health": 50063,
    "smtp": 52525,
    "sandbox": 58080,
}


@dataclass(frozen=True, slots=True)
class Plan:
    state: Path
    ports: Mapping[str, int]
    urls: Mapping[str, str]
    """For each process its own login."""
    secret_key: str
    webhook_secret: str
    key: str
    """The tenant's, which may do all that is a tenant's."""
    platform_key: str
    settings: Settings
    """What is set for one process or another besides."""

    def address(self, name: str) -> str:
        return f"{HOST}:{self.ports[name]}"

    @property
    def sandbox_url(self) -> str:
        return f"http://{self.address('sandbox')}"

    @property
    def service_account(self) -> Path:
        """The file with the key of the account that pushes."""
        return self.state / "service_account.json"

    @property
    def receiver_url(self) -> str:
        return f"{self.sandbox_url}/webhooks/{accounts.RECEIVER}"

    def environment(self, name: str) -> dict[str, str]:
        """The settings of one process, and no other's."""
        if name == "sandbox":
            return {
                "SANDBOX_DATABASE_URL": self.urls[name],
                "SANDBOX_SMTP_PORT": str(self.ports["smtp"]),
                "SANDBOX_HTTP_PORT": str(self.ports["sandbox"]),
                # Of its receiver, which is to verify what the dispatcher signs.
                "SANDBOX_WEBHOOK_SECRET": self.webhook_secret,
                "SANDBOX_FCM_CREDENTIALS_FILE": str(self.service_account),
            }
        common = {
            "DATABASE_URL": self.urls[name],
            "LISTEN_ADDRESS": self.address(name),
            "HEALTH_LISTEN": self.address(f"{name} health"),
            "SECRET_KEY": self.secret_key,
        }
        own = self.settings.get(name, {})
        return {f"NOTIFYQUEUE_{key}": value for key, value in {**common, **self._own(name), **own}.items()}

    def _own(self, name: str) -> dict[str, str]:
        if name == "worker":
            return {
                "EMAIL_PROVIDER": "smtp",
                "SMTP_HOST": HOST,
                "SMTP_PORT": str(self.ports["smtp"]),
                "SMTP_TLS": "none",
                "SMTP_SENDER": SENDER,
                "SMS_PROVIDER": "twilio",
                "TWILIO_ACCOUNT_SID": accounts.TWILIO_SID,
                "TWILIO_AUTH_TOKEN": accounts.TWILIO_TOKEN,
                "TWILIO_SENDER": "+15005550006",
                "TWILIO_URL": f"{self.sandbox_url}/twilio",
                "PUSH_PROVIDER": "fcm",
                "FCM_CREDENTIALS_FILE": str(self.service_account),
                "FCM_URL": f"{self.sandbox_url}/fcm",
                # For whoever chooses another: EMAIL_PROVIDER=resend, or mock on any lane.
                "RESEND_API_KEY": accounts.RESEND_KEY,
                "RESEND_SENDER": SENDER,
                "RESEND_URL": f"{self.sandbox_url}/resend",
                "MOCK_URL": self.sandbox_url,
            }
        if name == "dispatcher":
            return {
                "WEBHOOK_URL": self.receiver_url,
                "WEBHOOK_SECRET": self.webhook_secret,
                "WEBHOOK_ALLOW_ADDRESSES": f"{HOST}/32",
            }
        return {}


async def make_plan(state: Path, owner_url: str, settings: Settings = NO_SETTINGS) -> Plan:
    """Migrates the database, gives each process a login with a new password, and takes the ports."""
    await migrate(owner_url)
    plan = Plan(
        state=state,
        ports={name: _take(port) for name, port in PORTS.items()},
        urls=await _logins(state, owner_url),
        secret_key=_kept(state / "secret_key", secrets.token_urlsafe(48)),
        webhook_secret=_kept(state / "webhook_secret", _new_webhook_secret()),
        key=await _kept_key(state / "key", owner_url, Role.ADMIN, TENANT),
        platform_key=await _kept_key(state / "platform_key", owner_url, Role.PLATFORM, None),
        settings=settings,
    )
    # Anew each time: it names where tokens are given.
    write_secret(plan.service_account, service_account.make(f"{plan.sandbox_url}/fcm/token"))
    return plan


async def _logins(state: Path, owner_url: str) -> dict[str, str]:
    # Roles belong to the whole server, which other checkouts may share.
    prefix = f"nq_{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"
    passwords = {name: secrets.token_urlsafe(24) for name in (*SERVICES, "sandbox")}
    names = await create_roles(owner_url, prefix, passwords)
    names["sandbox"] = f"{prefix}_sandbox"
    connection = await asyncpg.connect(owner_url)
    try:
        await create_login(connection, names["sandbox"], passwords["sandbox"])
        await connection.execute(f'GRANT CREATE ON DATABASE "{urlsplit(owner_url).path[1:]}" TO {names["sandbox"]}')
    finally:
        await connection.close()
    return {name: _with_login(owner_url, names[name], passwords[name]) for name in names}


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))


def _new_webhook_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _kept(file: Path, new: str) -> str:
    """A secret that outlives this run, since what it sealed does; readable by its owner only."""
    if not file.exists():
        write_secret(file, new)
    return file.read_text()


def write_secret(file: Path, text: str) -> None:
    """For its owner alone, and whole or not at all: who comes in between finds what was there before."""
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.rename(file)


async def _kept_key(file: Path, owner_url: str, role: Role, tenant: str | None) -> str:
    """The key of the last run, where this database still takes it, or a new one."""
    connection = await asyncpg.connect(owner_url)
    try:
        kept = _read_key(file)
        if kept is None or not await _is_good(Store(connection), kept, role, tenant):
            kept = await create_key(connection, role, tenant, name="make up")
            write_secret(file, kept.reveal())
    finally:
        await connection.close()
    return kept.reveal()


def _read_key(file: Path) -> ApiKey | None:
    return ApiKey.parse(file.read_text()) if file.exists() else None


async def _is_good(store: Store, key: ApiKey, role: Role, tenant: str | None) -> bool:
    stored = (await store.find_api_keys([key.id])).get(key.id)
    if stored is None or not hmac.compare_digest(stored.secret_hash, key.secret_hash()):
        return False
    return (stored.caller.role, stored.caller.tenant) == (role, tenant)


def _take(wanted: int) -> int:
    """`wanted`, or another where somebody listens. On Linux no outgoing connection is given it until this process
    ends; whoever is to serve there binds it as well, and alone listens. Elsewhere two may not bind it.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, wanted))
    except OSError:
        holder.bind((HOST, 0))
    port: int = holder.getsockname()[1]
    if platform.system() == "Linux":
        holder.detach()  # open to the end, and nobody's to close
    else:
        holder.close()
    return port
