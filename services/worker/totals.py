"""Merges what was counted of ended notifications, on every worker and led by none.

Each statement that ends notifications leaves a row per tenant, channel and status behind, and waits for nobody. Left
alone they would be as many as the statements; whoever asks for the totals sums what is merged and the few that are not.
"""

import random
from typing import Protocol, Self

from shared.batching import Contention
from shared.loop import Loop

INTERVAL = 10.0  # seconds, before jitter
SOON = 1.0
FULL = 5_000  # the literal in sql/merge_totals.sql


class Store(Protocol):
    async def merge_totals(self) -> int: ...


class Totals:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = Loop("totals", self.merge)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    async def merge(self) -> float:
        """One turn: answers in how many seconds the next is due."""
        try:
            merged = await self._store.merge_totals()
        except Contention:  # another has the totals that these belong to: both can wait
            return SOON
        return 0 if merged == FULL else INTERVAL * random.uniform(0.5, 1.5)
