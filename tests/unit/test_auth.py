"""Who calls: what is asked of the database, how long it is remembered, and that doubt is a refusal."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from shared import auth
from shared.access import Caller, Role
from shared.api_keys import ApiKey
from shared.auth import MAX_GOOD, MAX_REFUSED, MAX_WAITING, REFUSED, REMEMBERED, Callers
from shared.errors import CredentialInvalid, DatabaseUnavailable, ServerOverloaded
from shared.store import StoredKey
from tests.waiting import settled


class Stored:
    """The keys that there are, and which were asked for."""

    def __init__(self) -> None:
        self.keys: dict[str, StoredKey] = {}
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False

    def add(self, *, good_for: timedelta | None = None) -> ApiKey:
        key = ApiKey.new()
        caller = Caller(f"key:{key.id}", "default", Role.SENDER)
        self.keys[key.id] = StoredKey(caller, key.secret_hash(), good_for)
        return key

    async def find_api_keys(self, ids: Sequence[str]) -> Mapping[str, StoredKey]:
        self.asked.append(list(ids))
        await self.gate.wait()
        if self.away:
            raise DatabaseUnavailable
        return {key_id: self.keys[key_id] for key_id in ids if key_id in self.keys}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def callers(stored: Stored, clock: Clock) -> AsyncIterator[Callers]:
    async with Callers(stored, clock=clock) as callers:
        yield callers


async def identify(callers: Callers, key: ApiKey) -> Caller:
    return await callers.identify([("authorization", f"Bearer {key.reveal()}")])


async def accepted(callers: Callers, key: ApiKey) -> bool:
    return not await refused(callers, key)


async def refused(callers: Callers, key: ApiKey) -> bool:
    try:
        await identify(callers, key)
    except CredentialInvalid:
        return True
    return False


async def test_a_good_key_says_who_calls(callers: Callers, stored: Stored) -> None:
    key = stored.add()
    assert await identify(callers, key) == Caller(f"key:{key.id}", "default", Role.SENDER)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
async def test_the_scheme_is_read_as_http_writes_it(callers: Callers, stored: Stored, scheme: str) -> None:
    key = stored.add()
    metadata: list[tuple[str, str | bytes]] = [("x-other", b"1"), ("authorization", f"{scheme} {key.reveal()}")]
    assert (await callers.identify(metadata)).actor == f"key:{key.id}"


@pytest.mark.parametrize(
    "form", ["", "{}", "Basic {}", "Bearer{}", "Bearer {} {}", "Bearer  {}x", "Bearer nq_", "Bearer {}\n", "Token {}"]
)
async def test_what_is_no_key_is_refused_without_asking(callers: Callers, stored: Stored, form: str) -> None:
    text = stored.add().reveal()
    with pytest.raises(CredentialInvalid):
        await callers.identify([("authorization", form.format(text, text))])
    assert stored.asked == []


async def test_of_two_keys_none_is_taken(callers: Callers, stored: Stored) -> None:
    good = ("authorization", f"Bearer {stored.add().reveal()}")
    for metadata in ([good, good], [good, ("authorization", "")], []):
        with pytest.raises(CredentialInvalid):
            await callers.identify(metadata)


async def test_a_wrong_secret_is_refused_and_spoils_nothing(callers: Callers, stored: Stored) -> None:
    key = stored.add()
    wrong = replace(key, secret=ApiKey.new().secret)
    assert await refused(callers, wrong)
    assert await accepted(callers, key)
    assert await refused(callers, wrong)
    assert len(stored.asked) == 1


async def test_all_refusals_read_alike(callers: Callers, stored: Stored) -> None:
    key = stored.add()
    told = set()
    for metadata in (
        [],
        [("authorization", "Bearer x")],
        [("authorization", f"Bearer {ApiKey.new().reveal()}")],
        [("authorization", f"Bearer {replace(key, secret=ApiKey.new().secret).reveal()}")],
    ):
        with pytest.raises(CredentialInvalid) as caught:
            await callers.identify(metadata)
        told.add((caught.value.message, *caught.value.metadata.items()))
    assert len(told) == 1


async def test_a_key_is_asked_for_once_in_a_while(callers: Callers, stored: Stored, clock: Clock) -> None:
    key = stored.add()
    for later in (0.0, REMEMBERED - 0.1, 0.1, 0.0):
        clock.now += later
        await identify(callers, key)
    assert stored.asked == [[key.id], [key.id]]


async def test_a_revoked_key_is_refused_at_the_end_of_what_is_remembered(
    callers: Callers, stored: Stored, clock: Clock
) -> None:
    key = stored.add()
    await identify(callers, key)
    del stored.keys[key.id]
    clock.now += REMEMBERED - 0.1
    assert await accepted(callers, key)
    clock.now += 0.1
    assert await refused(callers, key)


async def test_what_is_remembered_counts_from_before_it_was_asked(
    callers: Callers, stored: Stored, clock: Clock
) -> None:
    key = stored.add()
    stored.gate.clear()
    slow = asyncio.create_task(identify(callers, key))
    await settled()
    clock.now += REMEMBERED
    stored.gate.set()
    await slow
    del stored.keys[key.id]
    assert await refused(callers, key)


async def test_a_key_is_not_remembered_past_its_expiry(callers: Callers, stored: Stored, clock: Clock) -> None:
    key = stored.add(good_for=timedelta(seconds=3))
    await identify(callers, key)
    del stored.keys[key.id]  # as the database says from then on
    clock.now += 2.9
    assert await accepted(callers, key)
    clock.now += 0.1
    assert await refused(callers, key)


async def test_a_key_that_was_refused_is_asked_for_again_soon(callers: Callers, stored: Stored, clock: Clock) -> None:
    key = ApiKey.new()
    assert await refused(callers, key)
    assert await refused(callers, key)
    assert len(stored.asked) == 1
    stored.keys[key.id] = StoredKey(Caller(), key.secret_hash(), None)
    clock.now += REFUSED
    assert await identify(callers, key) == Caller()


async def test_many_calls_with_one_new_key_are_one_lookup(callers: Callers, stored: Stored) -> None:
    key, other = stored.add(), stored.add()
    stored.gate.clear()
    calls = [asyncio.create_task(identify(callers, key)) for _ in range(1_000)]
    calls += [asyncio.create_task(identify(callers, other)) for _ in range(1_000)]
    await settled()
    stored.gate.set()
    assert len(await asyncio.gather(*calls)) == 2_000
    assert stored.asked == [[key.id], [other.id]]


async def test_invented_keys_that_come_at_once_are_few_lookups(callers: Callers, stored: Stored) -> None:
    stored.gate.clear()
    calls = [asyncio.create_task(refused(callers, ApiKey.new())) for _ in range(1_000)]
    await settled()
    stored.gate.set()
    assert all(await asyncio.gather(*calls))
    assert len(stored.asked) <= 4


async def test_a_flood_of_invented_keys_pushes_out_no_good_one(callers: Callers, stored: Stored) -> None:
    key = stored.add()
    await identify(callers, key)
    await asyncio.gather(*(refused(callers, ApiKey.new()) for _ in range(MAX_REFUSED + 100)))
    asked = len(stored.asked)
    await identify(callers, key)
    assert len(stored.asked) == asked


@pytest.mark.parametrize(("kind", "most"), [("_good", MAX_GOOD), ("_refused", MAX_REFUSED)])
async def test_what_is_remembered_is_bounded(callers: Callers, stored: Stored, kind: str, most: int) -> None:
    keys = [stored.add() if kind == "_good" else ApiKey.new() for _ in range(most + 10)]
    await refused(callers, keys[0])
    for start in range(0, len(keys), 500):
        await asyncio.gather(*(refused(callers, key) for key in keys[start : start + 500]))
    assert len(getattr(callers, kind)._entries) == most
    stored.asked.clear()
    assert await refused(callers, keys[0]) == (kind == "_refused")
    assert stored.asked == [[keys[0].id]], "the oldest is forgotten first"


async def test_while_the_database_is_away_a_key_works_only_as_long_as_it_is_remembered(
    callers: Callers, stored: Stored, clock: Clock
) -> None:
    key = stored.add()
    await identify(callers, key)
    stored.away = True
    clock.now += REMEMBERED - 0.1
    assert await accepted(callers, key)
    clock.now += 0.1
    with pytest.raises(DatabaseUnavailable):
        await identify(callers, key)
    stored.away = False
    assert await accepted(callers, key), "a database that did not answer has refused nobody"


async def test_a_database_that_hangs_is_not_waited_for(
    callers: Callers, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "LOOKUP_TIMEOUT", 0.01)
    key = stored.add()
    stored.gate.clear()
    asking = asyncio.create_task(identify(callers, key))
    done, _ = await asyncio.wait({asking}, timeout=10)
    stored.gate.set()
    assert done
    with pytest.raises(DatabaseUnavailable):
        await asking


async def test_a_caller_that_leaves_takes_nobody_along(callers: Callers, stored: Stored) -> None:
    key = stored.add()
    stored.gate.clear()
    first, second = (asyncio.create_task(identify(callers, key)) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    stored.gate.set()
    assert (await second).tenant == "default"


async def test_no_more_strangers_wait_than_their_bound_and_who_is_known_waits_for_none(
    callers: Callers, stored: Stored
) -> None:
    known = stored.add()
    await identify(callers, known)
    stored.gate.clear()
    first = asyncio.create_task(refused(callers, ApiKey.new()))
    await settled()
    waiting = [asyncio.create_task(refused(callers, ApiKey.new())) for _ in range(MAX_WAITING)]
    await settled()
    with pytest.raises(ServerOverloaded):
        await identify(callers, ApiKey.new())
    assert await accepted(callers, known)
    stored.gate.set()
    assert all(await asyncio.gather(first, *waiting))
