"""Who calls, by the API key in `authorization: Bearer nq_…`, and whether they may.

A process asks the database about a key at most once in `REMEMBERED` seconds, so a call does not cost a round trip.
That is also how long a key may go on working after it was revoked; longer it does not, whatever the database does.
"""

import asyncio
import contextlib
import hmac
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self

from shared.access import Caller, permits
from shared.api_keys import ApiKey
from shared.batching import GroupCommit
from shared.clock import tick
from shared.errors import CredentialInvalid, DatabaseUnavailable, RoleMissing
from shared.layers import Call, Layer
from shared.store import StoredKey

BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE | re.ASCII)
REMEMBERED = 10.0
REFUSED = 2.0  # shorter, so that a key that is new everywhere else is not refused for long
LOOKUP_TIMEOUT = 3.0  # and CONNECT_TIMEOUT more, where the connection is given up too

# Besides those that are being looked up. They stand outside of MAX_CALLS, so that strangers do not take the room of
# those who are known; and they are as many as may come at once when a busy key has to be looked up again.
MAX_WAITING = 2_000
MAX_GOOD = 10_000
MAX_REFUSED = 1_000  # kept apart, so that a flood of invented keys does not push out the good ones

ANONYMOUS = Caller("anonymous", "default")


class Store(Protocol):
    async def find_api_keys(self, ids: Sequence[str]) -> Mapping[str, StoredKey]: ...


class _Memory:
    """What was found for at most `most` ids, each until its time; the oldest is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[str, tuple[float, StoredKey | None]] = {}

    def put(self, key_id: str, found: StoredKey | None, until: float) -> None:
        self._entries.pop(key_id, None)
        self._entries[key_id] = until, found
        if len(self._entries) > self._most:
            del self._entries[next(iter(self._entries))]

    def get(self, key_id: str, now: float) -> tuple[StoredKey | None] | None:
        """What was found, in a tuple; None: not remembered, or no longer."""
        until, found = self._entries.get(key_id, (now, None))
        return (found,) if now < until else None


class Callers:
    """Knows callers by their keys. Lookups gather while one is under way: many calls with a new key are one lookup."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = tick) -> None:
        self._store = store
        self._clock = clock
        self._good = _Memory(MAX_GOOD)
        self._refused = _Memory(MAX_REFUSED)
        self._lookups: GroupCommit[str, StoredKey | None] = GroupCommit(
            self._find, flights=asyncio.Semaphore(1), key=lambda _: object(), max_waiting=MAX_WAITING, name="keys"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._lookups.__aexit__(*error)

    async def identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
        """Raises CredentialInvalid; DatabaseUnavailable where it is asked and does not answer; ServerOverloaded where
        too many wait to be looked up.
        """
        key = _presented(metadata)
        if key is None:
            raise CredentialInvalid
        remembered = self._remembered(key.id)
        stored = remembered[0] if remembered else await self._lookups.submit(key.id)
        if stored is None or not hmac.compare_digest(stored.secret_hash, key.secret_hash()):
            raise CredentialInvalid
        return stored.caller

    def _remembered(self, key_id: str) -> tuple[StoredKey | None] | None:
        now = self._clock()
        return self._good.get(key_id, now) or self._refused.get(key_id, now)

    async def _find(self, ids: Sequence[str]) -> list[StoredKey | None]:
        # What an earlier group has found since these were asked for costs nothing more.
        known = {key_id: found[0] for key_id in dict.fromkeys(ids) if (found := self._remembered(key_id))}
        if missing := sorted(set(ids) - known.keys()):
            known |= await self._look_up(missing)
        return [known[key_id] for key_id in ids]

    async def _look_up(self, ids: Sequence[str]) -> dict[str, StoredKey | None]:
        asked = self._clock()  # before the database looks: what is remembered is never newer than it seems
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                found = await self._store.find_api_keys(ids)
        except TimeoutError as error:
            raise DatabaseUnavailable from error
        for key_id in ids:
            if stored := found.get(key_id):
                good_for = REMEMBERED if stored.good_for is None else stored.good_for.total_seconds()
                self._good.put(key_id, stored, asked + min(REMEMBERED, good_for))
            else:
                self._refused.put(key_id, None, asked + REFUSED)
        return {key_id: found.get(key_id) for key_id in ids}


def _presented(metadata: Iterable[tuple[str, str | bytes]]) -> ApiKey | None:
    given = [str(value) for name, value in metadata if name == "authorization"]
    if len(given) != 1:  # of two, another reader might take the other
        return None
    found = BEARER.fullmatch(given[0])
    return ApiKey.parse(found[1]) if found else None


def authenticated(callers: Callers) -> Layer:
    """Only with a good key."""

    @contextlib.asynccontextmanager
    async def layer(call: Call) -> AsyncIterator[None]:
        call.caller = await callers.identify(call.context.invocation_metadata() or ())
        yield

    return layer


@contextlib.asynccontextmanager
async def anonymous(call: Call) -> AsyncIterator[None]:
    """Everybody is the tenant `default`: for a server on loopback, where authentication is off."""
    call.caller = ANONYMOUS
    yield


@contextlib.asynccontextmanager
async def permitted(call: Call) -> AsyncIterator[None]:
    """Only what the caller's role allows."""
    if not permits(call.method, call.caller.role):
        raise RoleMissing
    yield
