"""Settings from the environment: every fault is named at once, by its variable, and never by its value."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr

from services.dispatcher.settings import Settings as DispatcherSettings
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker.settings import Settings as WorkerSettings
from shared import process
from shared.settings import PREFIX, ProcessSettings, SettingsInvalid, load

SECRET = "hunter2"
KEY = "a secret key for tests, 32 characters"
GOOD = {"DATABASE_URL": "postgresql://scheduler@db/notifyqueue", "SECRET_KEY": KEY, "EMAIL_PROVIDER": "mock"}

ALL: list[type[ProcessSettings]] = [SchedulerSettings, WorkerSettings, DispatcherSettings]
services = pytest.mark.parametrize("kind", ALL, ids=["scheduler", "worker", "dispatcher"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own."""
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)


def put(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)


def refused(monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings], variables: dict[str, str]) -> str:
    """The message with which these are refused."""
    put(monkeypatch, variables)
    with pytest.raises(SettingsInvalid) as caught:
        load(kind)
    return str(caught.value)


def named(message: str) -> set[str]:
    """The variables that a message is about: one a line."""
    return {line.split(":")[0].removeprefix(PREFIX) for line in message.splitlines()}


@services
def test_a_database_and_a_secret_key_are_all_that_a_service_needs(
    monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings]
) -> None:
    put(monkeypatch, GOOD)
    settings = load(kind)
    assert settings.database_url.get_secret_value() == GOOD["DATABASE_URL"]
    assert settings.secret() == KEY.encode()


@services
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings]) -> None:
    assert named(refused(monkeypatch, kind, {"EMAIL_PROVIDER": "mock"})) == {"DATABASE_URL", "SECRET_KEY"}


@services
def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings]) -> None:
    empty = dict.fromkeys(["DATABASE_URL", "SECRET_KEY", "SECRET_KEY_FILE", "LISTEN_DATABASE_URL", "MAX_CALLS"], "")
    assert named(refused(monkeypatch, kind, empty | {"EMAIL_PROVIDER": "mock"})) == {"DATABASE_URL", "SECRET_KEY"}


def test_three_services_on_one_machine_do_not_meet() -> None:
    fields = [kind.model_fields[name] for kind in ALL for name in ("listen_address", "health_listen")]
    assert len({field.default for field in fields}) == 6


BAD = {
    "AUTH": SECRET,
    "TLS_KEY_FILE": SECRET,
    "DATABASE_URL": f"mysql://{SECRET}",
    "LISTEN_DATABASE_URL": f"{SECRET}://db",
    "DATABASE_POOL_MAX": SECRET,
    "LISTEN_ADDRESS": f"{SECRET}:50051",
    "HEALTH_LISTEN": f"127.0.0.1:{SECRET}",
    "SECRET_KEY": SECRET,
    "LOG_LEVEL": SECRET,
    "MAX_CALLS": f"-{SECRET}",
    "CALL_TIMEOUT": SECRET,
    "SHUTDOWN_DELAY": SECRET,
    "SHUTDOWN_TIMEOUT": SECRET,
}
BAD_OF: Mapping[type[ProcessSettings], dict[str, str]] = {
    SchedulerSettings: {"MAX_ATTEMPTS": SECRET, "POLL_INTERVAL": SECRET},
    WorkerSettings: {
        "WORKER_CONCURRENCY": SECRET,
        "POLL_INTERVAL": SECRET,
        "RETRY_BASE": SECRET,
        "RETRY_CAP": SECRET,
        "PRIORITY_AGING": SECRET,
        "EMAIL_PROVIDER": SECRET,
        "EMAIL_PROVIDER_TIMEOUT": SECRET,
        "LEASE": SECRET,
    },
    DispatcherSettings: {
        "POLL_INTERVAL": SECRET,
        "LEASE": SECRET,
        "WEBHOOK_TIMEOUT": SECRET,
        "WEBHOOK_MAX_ATTEMPTS": SECRET,
        "WEBHOOK_CONCURRENCY": SECRET,
        "WEBHOOK_ENDPOINT_CONCURRENCY": SECRET,
        "WEBHOOK_MAX_ENDPOINTS": SECRET,
        "WEBHOOK_ALLOW_ADDRESSES": SECRET,
        "WEBHOOK_SECRET": SECRET,
    },
}


@services
def test_all_that_is_wrong_is_named_in_one_message_without_a_value(
    monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings]
) -> None:
    bad = BAD | BAD_OF[kind]
    message = refused(monkeypatch, kind, bad)
    assert named(message) == set(bad)
    assert SECRET not in message


@pytest.mark.parametrize("name", BAD)
def test_one_that_is_wrong_is_named_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    message = refused(monkeypatch, ProcessSettings, GOOD | {name: BAD[name]})
    assert named(message) == {name}
    assert SECRET not in message


def test_what_made_it_wrong_is_not_chained_to_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, BAD)
    with pytest.raises(SettingsInvalid) as caught:
        load(ProcessSettings)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_POOL_MAX", "5"),
        ("DATABASE_POOL_MAX", "1001"),
        ("MAX_CALLS", "0"),
        ("MAX_CALLS", "100001"),
        ("CALL_TIMEOUT", "0"),
        ("CALL_TIMEOUT", "nan"),
        ("CALL_TIMEOUT", "inf"),
        ("CALL_TIMEOUT", "1e300"),
        ("SHUTDOWN_DELAY", "-1"),
        ("SHUTDOWN_TIMEOUT", "inf"),
        ("LOG_LEVEL", "debug"),
        ("LOG_LEVEL", "INFO\n"),
    ],
)
def test_what_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    assert named(refused(monkeypatch, ProcessSettings, GOOD | {name: value})) == {name}


@pytest.mark.parametrize("url", ["postgresql://db/notifyqueue", "postgres://user:password@db:5432/notifyqueue"])
def test_a_database_is_a_postgresql_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    put(monkeypatch, GOOD | {"DATABASE_URL": url})
    assert load(ProcessSettings).database_url.get_secret_value() == url


def test_it_listens_for_wake_ups_where_the_database_is_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, GOOD)
    assert load(ProcessSettings).listen_url() == GOOD["DATABASE_URL"]
    put(monkeypatch, {"LISTEN_DATABASE_URL": "postgresql://direct/notifyqueue"})
    assert load(ProcessSettings).listen_url() == "postgresql://direct/notifyqueue"


@pytest.mark.parametrize("name", ["LISTEN_ADDRESS", "HEALTH_LISTEN"])
@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:65535", "localhost:50051", "[::1]:50051"])
@pytest.mark.parametrize("auth", ["keys", "off"])
def test_it_listens_on_loopback(monkeypatch: pytest.MonkeyPatch, name: str, address: str, auth: str) -> None:
    put(monkeypatch, GOOD | {name: address, "AUTH": auth})
    assert getattr(load(ProcessSettings), name.lower()) == address


ELSEWHERE = ["0.0.0.0:50051", "[::]:50051", "10.0.0.1:50051", "[2001:db8::1]:50051"]


@services
@pytest.mark.parametrize("address", ELSEWHERE)
def test_it_listens_elsewhere_only_with_keys_and_is_probed_anywhere(
    monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings], address: str
) -> None:
    put(monkeypatch, GOOD | {"LISTEN_ADDRESS": address, "HEALTH_LISTEN": address})
    assert load(kind).listen_address == address
    message = refused(monkeypatch, kind, {"AUTH": "off"})
    assert message == f"{PREFIX}LISTEN_ADDRESS: must be on a loopback address where {PREFIX}AUTH is off"


def test_an_auth_that_is_none_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"AUTH": "OFF", "LISTEN_ADDRESS": "0.0.0.0:50051"}
    assert named(refused(monkeypatch, ProcessSettings, GOOD | wrong)) == set(wrong)


@pytest.mark.parametrize("name", ["LISTEN_ADDRESS", "HEALTH_LISTEN"])
@pytest.mark.parametrize(
    "host", ["", "*", "unix", "a:b", "::1", "[::1", "[127.0.0.1]", "example.com", "ipv4:127.0.0.1"]
)
def test_it_listens_at_an_ip_address(monkeypatch: pytest.MonkeyPatch, name: str, host: str) -> None:
    message = refused(monkeypatch, ProcessSettings, GOOD | {name: f"{host}:50051"})
    assert message == f"{PREFIX}{name}: must be an IP address, with a port"


@pytest.mark.parametrize("port", ["", ":", ":x", ":-1", ":65536", ":²", ":٣", ": 1"])
def test_an_address_has_a_port(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    message = refused(monkeypatch, ProcessSettings, GOOD | {"LISTEN_ADDRESS": f"127.0.0.1{port}"})
    assert message == f"{PREFIX}LISTEN_ADDRESS: must be address:port"


@pytest.mark.parametrize("given", ["TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CLIENT_CA_FILE"])
def test_a_certificate_and_its_key_go_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str) -> None:
    message = refused(monkeypatch, ProcessSettings, GOOD | {given: str(tmp_path / SECRET)})
    assert named(message) == {"TLS_KEY_FILE"}


@services
def test_a_certificate_that_cannot_be_read_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[ProcessSettings]
) -> None:
    files = {name: str(tmp_path / SECRET) for name in ("TLS_CERT_FILE", "TLS_KEY_FILE")}
    message = refused(monkeypatch, kind, GOOD | files)
    assert message == f"{PREFIX}TLS_KEY_FILE: is no readable PEM certificate or unencrypted key"


def without_key() -> dict[str, str]:
    return {name: value for name, value in GOOD.items() if name != "SECRET_KEY"}


def test_the_secret_key_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    put(monkeypatch, without_key() | {"SECRET_KEY_FILE": str(file)})
    assert load(ProcessSettings).secret() == KEY.encode()


@pytest.mark.parametrize("content", [None, b"", b"short\n", b" " * 40, b"\xff" * 40])
def test_a_file_without_a_secret_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / SECRET
    if content is not None:
        file.write_bytes(content)
    message = refused(monkeypatch, ProcessSettings, without_key() | {"SECRET_KEY_FILE": str(file)})
    assert named(message) == {"SECRET_KEY"}
    assert SECRET not in message


def test_a_secret_key_and_a_file_are_one_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    message = refused(monkeypatch, ProcessSettings, GOOD | {"SECRET_KEY_FILE": str(file)})
    assert message == f"{PREFIX}SECRET_KEY: exactly one of {PREFIX}SECRET_KEY and {PREFIX}SECRET_KEY_FILE must be set"


@pytest.mark.parametrize(("length", "good"), [(31, False), (32, True)])
def test_a_secret_key_has_at_least_32_characters(monkeypatch: pytest.MonkeyPatch, length: int, good: bool) -> None:
    put(monkeypatch, GOOD | {"SECRET_KEY": "k" * length})
    if good:
        load(ProcessSettings)
    else:
        with pytest.raises(SettingsInvalid, match="SECRET_KEY: must have at least 32 characters"):
            load(ProcessSettings)


@services
def test_settings_that_are_shown_show_no_secret(monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings]) -> None:
    put(monkeypatch, GOOD | {"DATABASE_URL": f"postgresql://u:{SECRET}@db/n", "SECRET_KEY": SECRET * 5})
    settings = load(kind)
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()}"


def test_settings_do_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, GOOD)
    settings = load(ProcessSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.max_calls = 1


@pytest.mark.parametrize(
    ("kind", "variables", "good"),
    [
        (WorkerSettings, {"LEASE": "45", "EMAIL_PROVIDER_TIMEOUT": "30"}, False),
        (WorkerSettings, {"LEASE": "45.1", "EMAIL_PROVIDER_TIMEOUT": "30"}, True),
        (WorkerSettings, {"EMAIL_PROVIDER_TIMEOUT": "40"}, False),
        (WorkerSettings, {"LEASE": "40"}, False),
        (DispatcherSettings, {"LEASE": "19.9", "WEBHOOK_TIMEOUT": "15"}, False),
        (DispatcherSettings, {"LEASE": "20.1", "WEBHOOK_TIMEOUT": "15"}, True),
        (DispatcherSettings, {"WEBHOOK_TIMEOUT": "56"}, False),
    ],
)
def test_a_lease_outlives_the_call_it_is_for(
    monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings], variables: dict[str, str], good: bool
) -> None:
    put(monkeypatch, GOOD | variables)
    if good:
        load(kind)
    else:
        with pytest.raises(SettingsInvalid, match=f"^{PREFIX}LEASE: "):
            load(kind)


def test_a_lease_is_not_judged_by_a_timeout_that_is_wrong_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"EMAIL_PROVIDER_TIMEOUT": SECRET, "LEASE": "1"}
    assert named(refused(monkeypatch, WorkerSettings, GOOD | wrong)) == {"EMAIL_PROVIDER_TIMEOUT"}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (DispatcherSettings, {"LEASE": "1", "WEBHOOK_SECRET": SECRET, "LOG_LEVEL": SECRET}),
        (DispatcherSettings, {"WEBHOOK_URL": f"ftp://{SECRET}", "LEASE": "1", "MAX_CALLS": "0"}),
        (WorkerSettings, {"SMTP_PASSWORD": SECRET, "RETRY_BASE": "1000", "LOG_LEVEL": SECRET}),
    ],
)
def test_rules_about_two_settings_are_named_with_the_other_faults(
    monkeypatch: pytest.MonkeyPatch, kind: type[ProcessSettings], wrong: dict[str, str]
) -> None:
    assert named(refused(monkeypatch, kind, GOOD | wrong)) >= set(wrong)


def test_a_lease_that_is_too_short_is_named_with_the_other_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"LEASE": "1", "LOG_LEVEL": SECRET, "WORKER_CONCURRENCY": "0"}
    assert named(refused(monkeypatch, WorkerSettings, GOOD | wrong)) == set(wrong)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"MAX_ATTEMPTS": "0"}, "MAX_ATTEMPTS"),
        ({"MAX_ATTEMPTS": "101"}, "MAX_ATTEMPTS"),
        ({"POLL_INTERVAL": "0"}, "POLL_INTERVAL"),
    ],
)
def test_a_scheduler_refuses_what_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    assert named(refused(monkeypatch, SchedulerSettings, GOOD | variables)) == {name}


async def never(*_: object) -> NoReturn:
    raise AssertionError("was started")


def test_a_process_with_bad_settings_says_so_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(monkeypatch, GOOD | {"LOG_LEVEL": SECRET, "MAX_CALLS": SECRET})
    with pytest.raises(SystemExit) as caught:
        process.run("scheduler", SchedulerSettings, never)
    out, err = capsys.readouterr()
    assert caught.value.code == 78
    assert out == ""
    assert err.startswith("scheduler: settings\n")
    assert named(err.partition("\n")[2]) == {"LOG_LEVEL", "MAX_CALLS"}
    assert SECRET not in err


def test_settings_that_a_program_makes_wrong_show_no_value_either() -> None:
    with pytest.raises(ValueError, match="log_level") as caught:
        ProcessSettings(database_url=SecretStr(GOOD["DATABASE_URL"]), secret_key=SecretStr(KEY), log_level=SECRET)
    assert SECRET not in str(caught.value)
