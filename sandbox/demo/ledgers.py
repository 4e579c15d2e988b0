"""What really happened, counted on the other side: the mailbox, the mock provider's ledger, the webhook receiver."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp


class Arrival(NamedTuple):
    """A copy that reached somebody. Each address of a run is asked for once, so a second one there is a duplicate."""

    address: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Of one run, and of nothing that was there before it."""

    arrived: Sequence[Arrival]
    events: Counter[str]
    """How often the event of each notification was taken, of those whose signature was right."""
    failed_first: int
    """How many events the receiver refused before it took them."""
    unverified: int


class Sandbox:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def take_down(self, channel: str, seconds: float) -> None:
        """The mock provider refuses everything on this channel for so long from now; 0 is no longer."""
        await self._put(f"/mock/outages/{channel}", {"seconds": seconds})

    async def register(self, endpoint: str, secret: str) -> None:
        await self._put(f"/webhooks/{endpoint}/secret", {"secret": secret})

    async def read(self, endpoint: str, run: str) -> Ledgers:
        """`run` is in everything that was asked for: in the address, the text, or the labels."""
        # A row of the mailbox is a copy; of the mock provider's ledger a delivery key, since it deduplicates.
        rows = [*await self._get("/mails", containing=run), *await self._get("/mock/deliveries", containing=run)]
        webhooks = await self._get(f"/webhooks/{endpoint}", containing=run)
        return Ledgers(
            arrived=[Arrival(row["address"], row["delivery_key"]) for row in rows],
            events=Counter(_taken(webhooks)),
            failed_first=sum(row["answers"][0] >= 500 for row in webhooks),
            unverified=sum(row["verified"] is not True for row in webhooks),
        )

    async def reported(self, endpoint: str, run: str) -> set[str]:
        """The notifications whose event was taken."""
        return set(_taken(await self._get(f"/webhooks/{endpoint}", containing=run)))

    async def failures(self, address: str) -> int:
        """How often something that was sent to this address was not simply taken."""
        return sum(row["action"] != "accept" for row in await self._get("/requests", address=address))

    async def _get(self, path: str, **query: str) -> list[dict[str, Any]]:
        async with self._session.get(self._url + path, params=query) as answer:
            answer.raise_for_status()
            found: list[dict[str, Any]] = await answer.json()
            return found

    async def _put(self, path: str, body: dict[str, Any]) -> None:
        async with self._session.put(self._url + path, json=body) as answer:
            answer.raise_for_status()


def _taken(webhooks: Iterable[dict[str, Any]]) -> Iterable[str]:
    for row in webhooks:
        for status in row["answers"]:
            if row["verified"] and 200 <= status < 300:
                yield row["body"]["data"]["notification_id"]
