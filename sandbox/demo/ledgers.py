"""What really happened, counted on the other side: the mailbox, phones and devices, the webhook receiver."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import aiohttp

from sandbox.demo.story import Said


class Arrival(NamedTuple):
    """A copy that reached somebody. Each address of a run is asked for once, so a second one there is a duplicate."""

    address: str
    key: str | None
    """The notification, where the provider is told of it; else the id under which it was taken."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Of one run, and of nothing that was there before it."""

    arrived: Sequence[Arrival]
    events: Counter[str]
    """How often the event of each notification was taken, of those whose signature was right."""
    failed_first: int
    """How many events the receiver refused before it took them."""
    unverified: int
    read: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    """What each mail said, by its address."""
    times: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    """When they came, by the sandbox's clock, ascending."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """How often the mail server was asked to take something for an address, where that was looked at."""

    def named(self, taken: Mapping[str, str]) -> "Ledgers":
        """With the notification where only the id was known. `taken` has the ids that were answered, and for what."""
        known = [Arrival(address, taken.get(key or "", key)) for address, key in self.arrived]
        return replace(self, arrived=known)


class Sandbox:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def take_push_down(self, seconds: float) -> None:
        """The push provider refuses everything for so long from now; 0 is no longer."""
        await self._put("/fcm/outage", {"seconds": seconds})

    async def register(self, endpoint: str, secret: str) -> None:
        await self._put(f"/webhooks/{endpoint}/secret", {"secret": secret})

    async def read(self, endpoints: Iterable[str], run: str) -> Ledgers:
        """`run` is in everything that was asked for: in the address, the text, or the labels."""
        # A row is a copy: of mails, of texts, and of what a device shows, where a second takes the first one's place.
        letters = await self._get("/mails", containing=run)
        mails = [(row["address"], row["delivery_key"]) for row in letters]
        read, times = defaultdict(list), defaultdict(list)
        for row in letters:
            read[row["address"]].append(Said(row["subject"], row["text"].strip()))
            times[row["address"]].append(datetime.fromisoformat(row["received_at"]))
        rows = await self._get("/messages", containing=run)
        messages = [(row["address"], row["replaces"] or row["taken_as"]) for row in rows]
        webhooks = [row for name in endpoints for row in await self._get(f"/webhooks/{name}", containing=run)]
        return Ledgers(
            arrived=[Arrival(*found) for found in (*mails, *messages)],
            events=Counter(_taken(webhooks)),
            failed_first=sum(row["answers"][0] >= 500 for row in webhooks),
            unverified=sum(row["verified"] is not True for row in webhooks),
            read=read,
            times=times,
        )

    async def reported(self, endpoints: Iterable[str], run: str) -> set[str]:
        """The notifications whose event was taken."""
        return {id_ for name in endpoints for id_ in _taken(await self._get(f"/webhooks/{name}", containing=run))}

    async def failures(self, address: str) -> int:
        """How often something that was sent to this address was not simply taken."""
        return sum(row["action"] != "accept" for row in await self._get("/requests", address=address))

    async def asked(self, address: str) -> int:
        """How often anything was to be sent to this address."""
        return len(await self._get("/requests", address=address))

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
