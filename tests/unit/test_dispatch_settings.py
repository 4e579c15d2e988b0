"""The dispatcher's settings: what stops the start, and what the start says about it."""

import os

import pytest

from services.dispatcher.settings import Settings
from shared.settings import SettingsInvalid, load

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("NOTIFYQUEUE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NOTIFYQUEUE_DATABASE_URL", "postgresql://user:word@127.0.0.1/db")
    monkeypatch.setenv("NOTIFYQUEUE_SECRET_KEY", "k" * 32)


def set_all(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"NOTIFYQUEUE_{name}", value)


def test_the_defaults_are_what_the_documents_say() -> None:
    settings = load(Settings)
    assert (settings.listen_address, settings.health_listen) == ("127.0.0.1:50053", "127.0.0.1:50063")
    assert (settings.poll_interval, settings.lease, settings.webhook_timeout) == (5, 60, 15)
    assert (settings.webhook_max_attempts, settings.webhook_concurrency) == (10, 100)
    assert settings.webhook_endpoint_concurrency == 10
    assert settings.configured_endpoint() is None
    assert not settings.egress().permits_host("127.0.0.1")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"LEASE": "20"}, "NOTIFYQUEUE_LEASE: must be more than NOTIFYQUEUE_WEBHOOK_TIMEOUT + 5 seconds"),
        ({"WEBHOOK_TIMEOUT": "55"}, "NOTIFYQUEUE_LEASE: must be more than"),
        ({"WEBHOOK_TIMEOUT": "nan"}, "NOTIFYQUEUE_WEBHOOK_TIMEOUT: "),
        ({"POLL_INTERVAL": "0"}, "NOTIFYQUEUE_POLL_INTERVAL: "),
        ({"WEBHOOK_MAX_ATTEMPTS": "0"}, "NOTIFYQUEUE_WEBHOOK_MAX_ATTEMPTS: "),
        ({"WEBHOOK_CONCURRENCY": "many"}, "NOTIFYQUEUE_WEBHOOK_CONCURRENCY: "),
        ({"WEBHOOK_ALLOW_ADDRESSES": "localhost"}, "NOTIFYQUEUE_WEBHOOK_ALLOW_ADDRESSES: must be CIDRs"),
        ({"WEBHOOK_URL": "https://example.com/"}, "NOTIFYQUEUE_WEBHOOK_URL and NOTIFYQUEUE_WEBHOOK_SECRET: both"),
        ({"WEBHOOK_SECRET": SECRET}, "NOTIFYQUEUE_WEBHOOK_URL and NOTIFYQUEUE_WEBHOOK_SECRET: both"),
        ({"WEBHOOK_SECRET": "hush", "WEBHOOK_URL": "https://example.com/"}, "NOTIFYQUEUE_WEBHOOK_SECRET: must be"),
        ({"WEBHOOK_SECRET": SECRET, "WEBHOOK_URL": "example.com"}, "NOTIFYQUEUE_WEBHOOK_URL: must begin with"),
        ({"WEBHOOK_SECRET": SECRET, "WEBHOOK_URL": "http://127.0.0.1/"}, "NOTIFYQUEUE_WEBHOOK_URL: must not lead"),
    ],
)
def test_what_cannot_work_stops_the_start_with_its_name(
    settings: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, **settings)
    with pytest.raises(SettingsInvalid) as refused:
        load(Settings)
    assert problem in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_local_endpoint_can_be_configured_where_its_address_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(
        monkeypatch,
        WEBHOOK_URL="http://127.0.0.1:8080/hook",
        WEBHOOK_SECRET=SECRET,
        WEBHOOK_ALLOW_ADDRESSES="127.0.0.1/32",
    )
    assert load(Settings).configured_endpoint() == ("http://127.0.0.1:8080/hook", bytes(range(32)))
