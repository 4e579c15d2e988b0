"""A worker's lanes, as its settings name them."""

import pytest
from pydantic import SecretStr

from services.worker.providers.catalogue import choose_providers
from services.worker.settings import Settings
from shared.settings import PREFIX


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
