"""A worker's lanes, as its settings name them."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox import service_account
from services.worker.providers.catalogue import choose_providers
from services.worker.providers.unconfigured import Unconfigured
from services.worker.settings import Settings
from shared.settings import PREFIX
from tests.certificates import Authority


def make(**settings: object) -> Settings:
    common = {"database_url": SecretStr("postgresql://worker@db/x"), "secret_key": SecretStr("x" * 32), "auth": "off"}
    return Settings.model_validate(common | {"email_provider": "mock"} | settings)


def test_a_worker_serves_the_lanes_that_have_a_provider() -> None:
    assert set(choose_providers(make())) == {"EMAIL"}
    assert set(choose_providers(make(sms_provider="mock", push_provider="mock"))) == {"EMAIL", "SMS", "PUSH"}
    assert set(choose_providers(make(email_provider="none", sms_provider="mock"))) == {"SMS"}


def test_a_worker_without_a_lane_does_not_start() -> None:
    with pytest.raises(ValueError, match=f"{PREFIX}SMS_PROVIDER.*at least one must not be none"):
        make(email_provider="none")


def test_lanes_have_their_own_concurrency_or_that_of_all() -> None:
    settings = make(worker_concurrency=10, sms_concurrency=3)
    assert [settings.concurrency(channel) for channel in ("EMAIL", "SMS", "PUSH")] == [10, 3, 10]


def test_a_lease_outlives_an_attempt_on_every_lane_that_is_served() -> None:
    assert make(lease=10, email_provider_timeout=5, sms_provider_timeout=60).lease == 10
    with pytest.raises(ValueError, match=f"{PREFIX}SMS_PROVIDER_TIMEOUT"):
        make(lease=10, email_provider_timeout=5, sms_provider="mock", sms_provider_timeout=60)


def test_probes_do_not_come_less_often_than_their_bound() -> None:
    assert make(probe_base=5, probe_cap=5).probe_cap == 5
    with pytest.raises(ValueError, match=f"{PREFIX}PROBE_BASE"):
        make(probe_base=61)


TWILIO: dict[str, object] = {
    "sms_provider": "twilio",
    "twilio_account_sid": "AC" + "0" * 32,
    "twilio_auth_token": SecretStr("mk-token"),
    "twilio_sender": "+15005550006",
}
RESEND: dict[str, object] = {
    "email_provider": "resend",
    "resend_api_key": SecretStr("mk-key"),
    "resend_sender": "Us <us@example.com>",
}
FCM: dict[str, object] = {
    "push_provider": "fcm",
    "fcm_credentials": SecretStr(service_account.make("https://mk-google.example/token")),
}
COMPLETE: dict[str, dict[str, object]] = {"EMAIL": RESEND, "SMS": TWILIO, "PUSH": FCM}


@pytest.mark.parametrize("channel", COMPLETE)
def test_a_provider_that_has_what_it_needs_is_made(channel: str) -> None:
    settings = make(**COMPLETE[channel])
    assert choose_providers(settings)[channel].name == settings.provider(channel)


@pytest.mark.parametrize(
    ("channel", "name"),
    [(channel, name) for channel, complete in COMPLETE.items() for name in complete if not name.endswith("_provider")],
)
def test_what_a_provider_lacks_is_named_and_stops_neither_the_start_nor_other_lanes(channel: str, name: str) -> None:
    lacking = {key: value for key, value in COMPLETE[channel].items() if key != name}
    providers = choose_providers(make(**lacking))
    found = providers[channel]
    assert isinstance(found, Unconfigured)
    assert (found.name, found.cause) == (COMPLETE[channel][f"{channel.lower()}_provider"], f"{name.upper()}-missing")
    assert len(found.cause) <= 64


def test_all_that_a_provider_lacks_is_named_at_once(tmp_path: Path) -> None:
    twilio = choose_providers(make(sms_provider="twilio", twilio_auth_token_file=tmp_path / "token"))["SMS"]
    assert isinstance(twilio, Unconfigured)
    assert twilio.settings == ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN_FILE", "TWILIO_SENDER")
    remote = choose_providers(make(push_provider="remote", remote_token_file=tmp_path / "token"))["PUSH"]
    assert isinstance(remote, Unconfigured)
    assert remote.settings == ("PUSH_REMOTE_ADDRESS", "REMOTE_TOKEN_FILE")


def test_a_secret_can_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    kept = {key: value for key, value in TWILIO.items() if key != "twilio_auth_token"}
    lacking = choose_providers(make(**kept, twilio_auth_token_file=file))["SMS"]
    assert isinstance(lacking, Unconfigured)
    assert lacking.settings == ("TWILIO_AUTH_TOKEN_FILE",)
    file.write_text("mk-token\n")
    assert make(**kept, twilio_auth_token_file=file).twilio().secret == "mk-token"
    with pytest.raises(ValueError, match=f"{PREFIX}TWILIO_AUTH_TOKEN_FILE: at most one"):
        make(**TWILIO, twilio_auth_token_file=file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("twilio_account_sid", "mk-sid"),
        ("twilio_api_key_sid", "mk-sid"),
        ("twilio_sender", "mk-sender too long"),
        ("twilio_url", "http://mk-host.example"),
        ("resend_api_key", "mk key"),
        ("resend_sender", "mk-nowhere"),
        ("resend_url", "http://mk-host.example"),
        ("fcm_credentials", SecretStr('{"private_key": "mk-key"}')),
        ("fcm_project", "mk/project"),
        ("fcm_url", "http://mk-host.example"),
    ],
)
def test_what_is_malformed_stops_the_start_and_is_named_without_its_value(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{PREFIX}{name.upper()}") as refused:
        make(**RESEND | TWILIO | FCM | {name: value})
    assert "mk-" not in str(refused.value)


SMTP: dict[str, object] = {"email_provider": "smtp", "smtp_host": "mail.example.com", "smtp_sender": "us@example.com"}
REMOTE: dict[str, object] = {"sms_provider": "remote", "sms_remote_address": "sms.example:50051"}


@pytest.mark.parametrize(("name", "chosen"), [("smtp_ca_file", SMTP), ("remote_ca_file", REMOTE)])
def test_authorities_that_cannot_be_read_stop_the_start_and_are_named(
    tmp_path: Path, name: str, chosen: dict[str, object]
) -> None:
    file = tmp_path / "mk-ca.pem"
    for written in (None, b"", b"nonsense"):
        if written is not None:
            file.write_bytes(written)
        with pytest.raises(ValueError, match=f"{PREFIX}{name.upper()}: is no readable PEM") as refused:
            make(**chosen, **{name: file})
        assert "mk-" not in str(refused.value)
        assert getattr(make(**{name: file}), name) == file  # its provider is not chosen
    file.write_bytes(Authority().pem)
    assert getattr(make(**chosen, **{name: file}), name) == file


def test_a_provider_that_is_not_chosen_needs_nothing() -> None:
    assert make(twilio_account_sid="anything").twilio_account_sid == "anything"


@pytest.mark.parametrize("channel", COMPLETE)
def test_settings_show_no_secret(channel: str) -> None:
    settings = make(**COMPLETE[channel])
    assert "mk-" not in repr(settings) + str(settings)


def test_any_lane_can_be_delivered_by_somebody_elses_service() -> None:
    everywhere = {f"{channel}_provider": "remote" for channel in ("email", "sms", "push")}
    addresses = {f"{channel}_remote_address": f"{channel}.example:50051" for channel in ("email", "sms", "push")}
    settings = make(**everywhere, **addresses, remote_token=SecretStr("mk-token"))
    assert {provider.name for provider in choose_providers(settings).values()} == {"remote"}
    assert settings.remote("PUSH").address == "push.example:50051"
    assert (settings.remote("SMS").token, settings.remote("SMS").tls) == ("mk-token", True)
    lacking = choose_providers(make(**everywhere, **addresses | {"sms_remote_address": ""}))
    assert isinstance(lacking["SMS"], Unconfigured)
    assert lacking["SMS"].settings == ("SMS_REMOTE_ADDRESS",)
    assert lacking["PUSH"].name == "remote"
    with pytest.raises(ValueError, match=f"{PREFIX}SMS_REMOTE_ADDRESS"):
        make(**everywhere, **addresses | {"sms_remote_address": "mk-host"})
    with pytest.raises(ValueError, match=f"{PREFIX}REMOTE_TLS"):
        make(**everywhere, **addresses, remote_token=SecretStr("mk-token"), remote_tls="none")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"smtp_host": ""}, "smtp_host"),
        ({"smtp_sender": ""}, "smtp_sender"),
        ({"smtp_username": "mk-user"}, "smtp_password"),
        ({"smtp_password": SecretStr("mk-password")}, "smtp_password"),
    ],
)
def test_what_smtp_lacks_stops_the_start(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named) as refused:
        make(**SMTP | changes)
    assert "mk-" not in str(refused.value)
