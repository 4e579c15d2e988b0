"""The image and docker-compose.yml, as far as they can be proven without an engine.

Docker Compose itself reads the file. What the Dockerfile copies and pins is put together in folders, and the file's own
commands run there as plain processes, in its own environment, with other hosts and ports.
"""

import asyncio
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from sandbox.collector import Collector
from sandbox.postgres import Postgres
from sandbox.settings import Settings as SandboxSettings
from services.dispatcher.settings import Settings as DispatcherSettings
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker.settings import Settings as WorkerSettings
from shared.settings import PREFIX, ProcessSettings, load
from tests.e2e.conftest import ROOT
from tests.programs import require_program
from tests.waiting import eventually
from tools import metrics_page

SERVICES: Mapping[str, type[ProcessSettings]] = {
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "dispatcher": DispatcherSettings,
}
OURS = (*SERVICES, "sandbox", "migrate")
MODULES = (*(f"services.{name}.__main__" for name in SERVICES), "shared.admin", "shared.healthcheck")
LOCK = "requirements-services.txt"
RESERVE = 10  # seconds that a stop may take beyond the drain
WITHIN = 60.0
ANOTHER_CHECK = 1.0  # seconds until: each is a process, which costs as much as the one that is starting
HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - as it is within a container
OWNER = "postgres:development"
SCRAPER = ROOT / "prometheus" / "prometheus.yml"

Composed = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def composed() -> Composed:
    """The services of docker-compose.yml, as Docker Compose understands them."""
    found = importlib.util.find_spec("compose")
    suits = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    binary = Path(found.origin).with_name("docker-compose") if suits and found and found.origin else None
    command = (require_program("docker compose", binary), "--file", ROOT / "docker-compose.yml", "config")
    read = subprocess.run((*command, "--format", "json"), capture_output=True, text=True, check=False, env={})
    assert read.returncode == 0, read.stderr
    services: Composed = json.loads(read.stdout)["services"]
    return services


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the Dockerfile, with what it has from the stages below it."""

    copies: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)


def stages() -> dict[str, Stage]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, Stage] = {}
    for line in (line for line in text.splitlines() if line and not line.startswith("#")):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]
            below = found.get(base, Stage())
            found[name] = Stage(dict(below.copies), dict(below.environment), dict(below.other))
        elif word == "COPY":
            source, target = rest.split()
            found[name].copies[source] = target
        elif word == "ENV":
            found[name].environment.update(pair.partition("=")[::2] for pair in rest.split())
        else:
            found[name].other[word] = rest
    return found


@dataclass(frozen=True, slots=True)
class Images:
    """What stands in /app of each target, and the Python that is in all of them."""

    folder: Path
    python: Path

    def __getitem__(self, target: str) -> Path:
        return self.folder / target


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    folder = tmp_path_factory.mktemp("images")
    for name, stage in stages().items():
        for source, target in stage.copies.items():
            _copy(ROOT / source, folder / name / target)
    uv = Path(sys.executable).with_name("uv")
    python = folder / "venv/bin/python"
    for command in (
        ("venv", "--python", sys.executable, folder / "venv"),
        ("pip", "sync", "--python", python, "--require-hashes", folder / "services" / LOCK),
    ):
        subprocess.run((uv, "--system-certs", "--quiet", *command), check=True)
    # Compiled, as in the image: the library's part as far as it is needed.
    subprocess.run((python, "-m", "compileall", "-q", folder / "services", folder / "sandbox"), check=True)
    subprocess.run(
        (python, "-c", f"import {', '.join((*MODULES, 'sandbox.__main__'))}"), cwd=folder / "sandbox", check=True
    )
    return Images(folder, python)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def seconds(duration: str) -> int:
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert found, duration
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def targets() -> list[tuple[str, int]]:
    """Whom the backend of metrics scrapes."""
    return [(name, int(port)) for name, port in re.findall(r"- (\w+):(\d+)$", SCRAPER.read_text(), re.MULTILINE)]


def environment_of(composed: Composed, name: str) -> dict[str, str]:
    """What a container is given."""
    target = composed[name]["build"]["target"]
    return {**stages()[target].environment, **composed[name]["environment"]}


def test_everything_that_is_published_is_on_loopback_and_the_worker_publishes_nothing(composed: Composed) -> None:
    ports = {name: service.get("ports", []) for name, service in composed.items()}
    assert {port["host_ip"] for published in ports.values() for port in published} == {HOST}
    assert not ports["worker"]
    assert [port["published"] for port in ports["scheduler"]] == ["50051"]


def test_every_process_is_asked_to_stop_and_has_the_time_for_it(composed: Composed) -> None:
    for name in OURS:
        assert composed[name]["init"] is True
        assert "entrypoint" not in stages()["services"].other
    for name in SERVICES:
        timeout = int(composed[name]["environment"][f"{PREFIX}SHUTDOWN_TIMEOUT"])
        assert seconds(composed[name]["stop_grace_period"]) > timeout + RESERVE
        assert composed[name]["command"] == ["python", "-m", f"services.{name}"]  # no shell that keeps the signal


def test_what_waits_waits_for_what_it_needs(composed: Composed) -> None:
    conditions = {
        name: {other: wait["condition"] for other, wait in service.get("depends_on", {}).items()}
        for name, service in composed.items()
    }
    assert conditions["migrate"] == {"postgres": "service_healthy"}
    assert "log_error_verbosity=terse" in composed["postgres"]["command"]  # its log quotes no rows
    for name in SERVICES:
        assert conditions[name]["migrate"] == "service_completed_successfully"
    waited_for = {other for waits in conditions.values() for other, how in waits.items() if how == "service_healthy"}
    assert all("test" in composed[name]["healthcheck"] for name in (*waited_for, *SERVICES))


@pytest.mark.parametrize("name", [*SERVICES, "sandbox"])
def test_every_variable_is_a_setting_that_its_process_takes(
    composed: Composed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in [variable for variable in os.environ if variable.startswith((PREFIX, "SANDBOX_"))]:
        monkeypatch.delenv(variable)
    for variable, value in environment_of(composed, name).items():
        monkeypatch.setenv(variable, value)
    kind = SERVICES.get(name, SandboxSettings)
    prefix = PREFIX if name in SERVICES else "SANDBOX_"
    own = {variable for variable in composed[name]["environment"] if not variable.startswith("OTEL_")}
    assert {variable.removeprefix(prefix).lower() for variable in own} <= {*kind.model_fields}
    load(kind)


def test_each_service_logs_in_as_itself(composed: Composed) -> None:
    passwords = composed["migrate"]["environment"]
    for name in SERVICES:
        login = f"notifyqueue_{name}:{passwords[f'{PREFIX}{name.upper()}_PASSWORD']}"
        assert composed[name]["environment"][f"{PREFIX}DATABASE_URL"].startswith(f"postgresql://{login}@postgres:5432/")
    assert len({composed[name]["environment"][f"{PREFIX}SECRET_KEY"] for name in SERVICES}) == 1


def test_traces_and_metrics_go_to_backends_whose_versions_are_pinned(composed: Composed) -> None:
    for name in SERVICES:
        assert composed[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://traces:4317"
    assert re.fullmatch(r"jaegertracing/jaeger:\d+\.\d+\.\d+", composed["traces"]["image"])
    assert re.fullmatch(r"prom/prometheus:v\d+\.\d+\.\d+", composed["metrics"]["image"])
    (mounted,) = composed["metrics"]["volumes"]
    assert (mounted["source"], mounted["read_only"]) == (str(SCRAPER.parent), True)
    assert f"--config.file={mounted['target']}/{SCRAPER.name}" in composed["metrics"]["command"]
    assert f"rule_files:\n  - {metrics_page.RULES.relative_to(SCRAPER.parent)}\n" in SCRAPER.read_text()
    assert {name for name, _ in targets()} == {*SERVICES}


def test_a_reader_sees_the_development_key_and_what_it_is_for(composed: Composed) -> None:
    head, _, _ = (ROOT / "docker-compose.yml").read_text().partition("\nname:")
    assert composed["migrate"]["environment"]["NOTIFYQUEUE_DEVELOPMENT_KEY"] in head
    assert "FOR DEVELOPMENT ONLY" in head


def test_the_image_runs_as_nobody_in_particular_and_gets_its_signals() -> None:
    for target in ("services", "sandbox"):
        told = stages()[target].other
        assert told["USER"] == "10001:10001"
        assert told["STOPSIGNAL"] == "SIGTERM"
        assert json.loads(told["CMD"])[:2] == ["python", "-m"]
        assert "ENTRYPOINT" not in told
    assert [*stages()][-1] == "services"  # what is built where no target is named
    assert stages()["services"].environment["PYTHONUNBUFFERED"] == "1"


def test_nothing_is_copied_but_what_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in ignored if not line.startswith("#")]
    copied = {source for stage in stages().values() for source in stage.copies}
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_the_service_image_has_all_that_it_imports_and_no_sandbox(images: Images) -> None:
    subprocess.run((images.python, "-c", f"import {', '.join(MODULES)}"), cwd=images["services"], check=True)
    assert not (images["services"] / "sandbox").exists()
    installed = subprocess.run(
        (images.python, "-c", "import importlib.util; print(importlib.util.find_spec('pytest'))"),
        cwd=images["services"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert installed.stdout == "None\n"


class Here:
    """The containers as processes of this machine: the same commands and variables, other hosts and ports."""

    def __init__(self, composed: Composed, images: Images, owner_url: str, ports: Iterator[int]) -> None:
        self._composed = composed
        self._images = images
        self._owner_url = owner_url
        services = {(name, port): next(ports) for name in SERVICES for port in (50051, 50061)}
        others = (("sandbox", 52525), ("sandbox", 58080), ("traces", 4317), *targets())
        self.ports = {**services, **{other: next(ports) for other in others}}

    def address(self, name: str, port: int) -> str:
        return f"{HOST}:{self.ports[name, port]}"

    def command(self, name: str) -> list[str]:
        return list(self._composed[name]["command"])

    def check(self, name: str) -> list[str]:
        kind, *command = self._composed[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return [self._translated(name, word) for word in command]

    def environment(self, name: str) -> dict[str, str]:
        given = environment_of(self._composed, name)
        translated = {variable: self._translated(name, value) for variable, value in given.items()}
        if f"{PREFIX}WEBHOOK_ALLOW_ADDRESSES" in translated:
            translated[f"{PREFIX}WEBHOOK_ALLOW_ADDRESSES"] += f",{HOST}/32"
        return {"PATH": f"{self._images.python.parent}:{os.environ['PATH']}", **translated}

    def folder(self, name: str) -> Path:
        return self._images[self._composed[name]["build"]["target"]]

    def _translated(self, name: str, text: str) -> str:
        owner, _, database = self._owner_url.removeprefix("postgresql://").rpartition("@")
        text = text.replace(OWNER, owner).replace("@postgres:5432/notifyqueue", f"@{database}")
        for (host, port), free in self.ports.items():
            aliases = (host, HOST, EVERYWHERE) if host == name else (host,)
            for alias in aliases:
                text = text.replace(f"{alias}:{port}", f"{HOST}:{free}")
            if host in ("sandbox", name) and text == str(port):
                text = str(free)
        return HOST if text in ("sandbox", EVERYWHERE) else text

    async def run(self, name: str, command: Sequence[str]) -> tuple[int | None, str]:
        """To its end; its exit code and what it printed."""
        process = await self._start(name, command, asyncio.subprocess.PIPE)
        async with asyncio.timeout(WITHIN):
            output, _ = await process.communicate()
        return process.returncode, output.decode()

    @asynccontextmanager
    async def running(self, name: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """From when it is healthy. It must end well when it is asked to stop."""
        with (folder / f"{name}.log").open("wb") as log:
            process = await self._start(name, self.command(name), log.fileno())
        try:

            async def healthy() -> bool:
                assert process.returncode is None, (folder / f"{name}.log").read_text()
                code, _ = await self.run(name, self.check(name))
                return code == 0

            await eventually(healthy, within=WITHIN, pause=ANOTHER_CHECK)
            yield process
            process.terminate()
            async with asyncio.timeout(seconds(self._composed[name]["stop_grace_period"])):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _start(self, name: str, command: Sequence[str], output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder(name),
            env=self.environment(name),
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )


@pytest.fixture
async def here(
    composed: Composed, images: Images, postgres: Postgres, free_ports: Iterator[int]
) -> AsyncIterator[Here]:
    owner = await asyncpg.connect(postgres.url)
    await owner.execute("CREATE DATABASE composed")
    yield Here(composed, images, postgres.url_of("composed"), free_ports)
    await owner.execute("DROP DATABASE composed WITH (FORCE)")
    await owner.close()


@pytest.fixture
def free_ports(unused_tcp_port_factory: Any) -> Iterator[int]:
    return iter(unused_tcp_port_factory, None)


async def get(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.json()


async def get_text(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_what_it_starts_takes_a_mail_delivers_it_and_reports_it(here: Here, tmp_path: Path) -> None:
    code, output = await here.run("migrate", here.command("migrate"))
    assert code == 0, output
    key = output.splitlines()[-1]
    assert key == here.environment("migrate")["NOTIFYQUEUE_DEVELOPMENT_KEY"]
    assert (await here.run("migrate", here.command("migrate")))[0] == 0  # as at every further `up`

    async with Collector(here.ports["traces", 4317]) as collector, AsyncExitStack() as stack:
        for name in ("sandbox", *SERVICES):
            await stack.enter_async_context(here.running(name, tmp_path))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(here.address("scheduler", 50051)))
        answer = await scheduler_pb2_grpc.SchedulerStub(channel).ScheduleNotification(
            scheduler_pb2.ScheduleNotificationRequest(
                idempotency_key="composed",
                address="you@example.com",
                email=notification_pb2.EmailContent(subject="Composed", text="It works."),
            ),
            metadata=(("authorization", f"Bearer {key}"),),
        )
        sandbox = f"http://{here.address('sandbox', 58080)}"
        (mail,) = await eventually(lambda: get(f"{sandbox}/mails"), within=WITHIN)
        assert mail["delivery_key"] == answer.notification.notification_id
        (hook,) = await eventually(lambda: get(f"{sandbox}/webhooks/up"), within=WITHIN)
        assert (hook["type"], hook["verified"]) == ("notification.sent", True)

        async def measured() -> bool:
            pages = [await get_text(f"http://{here.address(*target)}/metrics") for target in targets()]
            names = {line.split()[2] for page in pages for line in page.splitlines() if line.startswith("# TYPE")}
            return all(metrics_page.named_in(alert.expression) <= names for alert in metrics_page.ALERTS)

        await eventually(measured, within=WITHIN)  # so no alert is about what nobody says
        await stack.aclose()  # each tells the last of it as it ends
        assert {span.service for span in collector.about(mail["delivery_key"])} == {*SERVICES}
