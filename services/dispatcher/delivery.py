"""A delivery under way: from its claim to what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from services.dispatcher.client import Post
from services.dispatcher.keys import Keys
from services.dispatcher.outcome import Answer, Verdict
from services.dispatcher.signature import sign


@dataclass(frozen=True, slots=True)
class Delivery:
    """As it was claimed. Its times are the database's: `claimed_at`, plus what passed since `claimed_tick` here."""

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant: str
    attempt: int
    url: str
    sealed_secret: bytes
    body: bytes
    claim_token: UUID
    claimed_at: datetime
    claimed_tick: float
    trace_context: str | None = None
    """The span of the attempt that ended its notification, or of whoever asked for it."""
    recent: bool = True
    """It happened at most a quarter of an hour ago."""

    def time_at(self, tick: float) -> datetime:
        return self.claimed_at + timedelta(seconds=tick - self.claimed_tick)


@dataclass(frozen=True, slots=True)
class Result:
    """What is recorded of an attempt."""

    delivery: Delivery
    started_at: datetime
    duration: timedelta
    answer: Answer
    verdict: Verdict


def signed_post(delivery: Delivery, keys: Keys, sent_at: datetime, trace: Mapping[str, str]) -> Post:
    """What goes out, with the headers that say what it is a part of. Raises SealBroken."""
    key = keys.open(delivery.tenant, delivery.endpoint_id, delivery.sealed_secret)
    webhook_id, timestamp = str(delivery.event_id), int(sent_at.timestamp())
    headers = {
        **trace,
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(key, webhook_id, timestamp, delivery.body),
    }
    return Post(delivery.url, headers, delivery.body, sent_at)
