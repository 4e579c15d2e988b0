"""Claims: who posts a delivery, until when, and what is given back if the answer was lost or came late."""

from datetime import timedelta
from uuid import UUID, uuid4

import structlog

from services.dispatcher.store import Claimed, Store
from shared.clock import tick
from shared.database import Database

log = structlog.get_logger()

# A lease must outlast a post by this much: the time from asking for the claim to posting, and from the answer to its
# record.
MARGIN = 5.0
LATEST_START = 2.5

NOTHING = Claimed((), ())


class Claims:
    def __init__(self, database: Database, *, cap: int, lease: float, max_attempts: int) -> None:
        """`cap` is what an endpoint may have under way, over all dispatchers; `lease` is in seconds."""
        self._database = database
        self._cap = cap
        self._lease = timedelta(seconds=lease)
        self._max_attempts = max_attempts
        self._doubtful: set[UUID] = set()

    async def claim(self, room: int) -> Claimed:
        """At most `room` deliveries, to be posted at once. Raises what the database does."""
        await self.give_back_doubtful()
        token, began = uuid4(), tick()
        self._doubtful.add(token)  # until the answer is here
        claimed = await self._ask(token, room, began)
        if tick() - began > LATEST_START:  # this process stood still: what is left of the lease is too short
            log.warning("webhook.claim_late", deliveries=len(claimed.deliveries))
            await self.give_back_doubtful()
            return Claimed((), claimed.given_up)
        self._doubtful.discard(token)
        return claimed

    async def _ask(self, token: UUID, room: int, began: float) -> Claimed:
        async with self._database.transaction() as executor:
            store = Store(executor)
            endpoints = await store.take_endpoints(self._cap, room)
            if not endpoints:
                return NOTHING
            return await store.claim_deliveries(
                endpoints,
                cap=self._cap,
                limit=room,
                token=token,
                lease=self._lease,
                max_attempts=self._max_attempts,
                tick=began,
            )

    async def give_back_doubtful(self) -> None:
        """What may be held under a token whose answer was lost. Raises what the database does, and can be repeated."""
        for token in tuple(self._doubtful):
            await Store(self._database).release_claim(token)
            self._doubtful.discard(token)

    async def seconds_to_next(self, horizon: float) -> float | None:
        return await Store(self._database).read_next_due(self._cap, timedelta(seconds=horizon))
