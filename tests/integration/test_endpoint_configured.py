"""The endpoint that the settings name."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from services.dispatcher.configured import ConfiguredEndpoint
from services.dispatcher.keys import Keys
from tests.integration.test_dispatcher_rig import KEY, Rig

URL = "https://example.com/hook"
OTHER_KEY = bytes(32)


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


def configured(rig: Rig, url: str = URL, key: bytes = KEY) -> ConfiguredEndpoint:
    return ConfiguredEndpoint(rig.store, rig.keys, url=url, key=key)


async def test_any_number_of_processes_make_it_once(rig: Rig) -> None:
    ids = await asyncio.gather(*(configured(rig).ensure() for _ in range(8)))
    assert len(set(ids)) == 1
    assert await rig.value("SELECT count(*) FROM notifyqueue.webhook_endpoints") == 1


async def test_nothing_is_written_where_it_is_as_it_should_be(rig: Rig) -> None:
    endpoint = await configured(rig).ensure()
    before = await rig.stored_endpoint(endpoint)
    assert await configured(rig).ensure() == endpoint
    assert await rig.stored_endpoint(endpoint) == before


async def test_it_follows_the_settings(rig: Rig) -> None:
    endpoint = await configured(rig).ensure()
    assert await configured(rig, "https://example.com/new", OTHER_KEY).ensure() == endpoint
    stored = await rig.stored_endpoint(endpoint)
    assert stored["url"] == "https://example.com/new"
    assert rig.keys.open("default", endpoint, stored["sealed_secret"]) == OTHER_KEY


async def test_it_is_sealed_again_under_a_new_secret_key(rig: Rig) -> None:
    endpoint = await configured(rig).ensure()
    rig.keys = Keys(b"another secret key for tests, also 32 characters")
    assert await configured(rig).ensure() == endpoint
    assert rig.keys.open("default", endpoint, (await rig.stored_endpoint(endpoint))["sealed_secret"]) == KEY


async def test_it_is_enabled_again_after_it_was_gone(rig: Rig) -> None:
    endpoint = await configured(rig).ensure()
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET enabled = false, disabled_reason = 'GONE'")
    await configured(rig).ensure()
    assert (await rig.stored_endpoint(endpoint))["enabled"]


async def test_deleted_by_hand_it_is_made_anew(rig: Rig) -> None:
    endpoint = await configured(rig).ensure()
    assert await rig.store.delete_endpoint("default", endpoint)
    assert await configured(rig).ensure() != endpoint


async def test_an_endpoint_of_the_same_url_that_was_made_by_hand_is_left_alone(rig: Rig) -> None:
    by_hand = await rig.endpoint(URL)
    before = await rig.stored_endpoint(by_hand)
    assert await configured(rig, key=OTHER_KEY).ensure() != by_hand
    assert await rig.stored_endpoint(by_hand) == before
