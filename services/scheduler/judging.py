"""Step B of accepting, pure: what a request is, what is known of it, and whether it goes in.

A request is judged in the order of `accept`: whoever is refused for one thing spends nothing of the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from services.scheduler import destination
from services.scheduler.destination import Person
from services.scheduler.fingerprint import fingerprint
from services.scheduler.limits import Bucket, Limit, Quota, refusals
from services.scheduler.notification import Notification, Request
from services.scheduler.templates import Rendered, VersionRef
from services.scheduler.times import judge_times
from shared import suppression
from shared.errors import (
    AddressSuppressed,
    ApiError,
    IdempotencyKeyReused,
    RecipientOptedOut,
    RequestInvalid,
    ResourceNotFound,
    Violation,
)
from shared.telemetry.spans import Reference

Key = tuple[str, str]  # tenant, idempotency key

RENDERED = 8 * 1024  # bytes that a template is taken to come to, before it is known: more than most


@dataclass(frozen=True, slots=True)
class Known:
    """The notification that already stands under a key."""

    notification_id: UUID
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What A found for one request."""

    known: Known | None
    now: datetime
    horizon: timedelta
    past_grace: timedelta
    region: str | None = None
    suppressed_by: Sequence[str] = ()
    """The sources of what suppresses the address or the subscriber for the category."""
    limit: Limit | None = None
    empty_at: datetime | None = None
    """Of the bucket; None where the tenant has none yet, or needs none."""
    template: VersionRef | None = None
    """The version that the request means; None where there is none, or it names no template."""
    pending_quota: int | None = None
    pending: int = 0
    """Of the bucket, as the next."""
    counted_at: datetime | None = None
    person: Person | None = None
    """The subscriber whom it names; None where there is none."""

    @property
    def bucket(self) -> Bucket | None:
        return Bucket(self.limit, self.now, self.empty_at or self.now) if self.limit else None

    @property
    def quota(self) -> Quota | None:
        return Quota(self.pending_quota, self.now, self.pending, self.counted_at) if self.pending_quota else None


@dataclass(slots=True)
class Fate:
    """What has become of one request, over all that its group is sent, and sent again."""

    ours: bool = False
    """It was written, or may have been: found later, it is no replay."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that may be written down."""

    request: Request
    fingerprint: bytes
    rendered: Rendered | None = None
    """What its template was rendered to, once it was."""
    trace: Reference | None = field(default=None, compare=False, repr=False)
    """The span that asks for it."""
    fate: Fate = field(default_factory=Fate, compare=False, repr=False)

    @property
    def content(self) -> Mapping[str, object]:
        return self.rendered.content if self.rendered else self.request.content

    @property
    def size(self) -> int:
        """Bytes of what may be long, of which a group carries a bounded number."""
        request = self.request
        variables, to_come = (request.template.variables, RENDERED) if request.template else ("", 0)
        return to_come + len(f"{request.address}{request.content}{request.labels}{variables}".encode())


@dataclass(frozen=True, slots=True)
class Accepted:
    notification: Notification
    replayed: bool


Answer = Accepted | ApiError


def candidate(request: Request) -> Candidate:
    return Candidate(request, fingerprint(request))


def sort_out(
    group: Sequence[Candidate], facts: Mapping[Key, Facts]
) -> tuple[list[Candidate], dict[Key, UUID], dict[Key, Answer]]:
    """Step B: what is to be written, what is a replay, and who is refused."""
    new: list[Candidate] = []
    replays: dict[Key, UUID] = {}
    refused: dict[Key, Answer] = {}
    for candidate in group:
        key = candidate.request.key
        known = facts[key].known
        if known is None:
            if refusal := _judge(candidate, facts[key]):
                refused[key] = refusal
            else:
                new.append(candidate)
        elif known.fingerprint == candidate.fingerprint:
            replays[key] = known.notification_id
        else:
            refused[key] = IdempotencyKeyReused(known.notification_id)
    passed, over = _within_limits(new, facts)
    return passed, replays, refused | over


def _judge(candidate: Candidate, facts: Facts) -> ApiError | None:
    """Why a new request is refused, whatever its tenant has used of its limit."""
    request = candidate.request
    violations = destination.unlocated(request, facts.region) + judge_times(request.due, request.expiry, facts)
    if violations:
        return RequestInvalid(violations)
    if refusal := destination.unaddressed(request, facts.person):
        return refusal
    match suppression.reason(facts.suppressed_by):
        case None:
            return None if candidate.rendered else _judge_template(request, facts)
        case suppression.OPTED_OUT:
            return RecipientOptedOut()
        case _:
            return AddressSuppressed()


def _judge_template(request: Request, facts: Facts) -> ApiError | None:
    if request.template is None:
        return None
    if facts.template is None:
        return ResourceNotFound("template")
    if facts.template.channel != request.channel:
        return RequestInvalid([Violation("template.channel", "is not the template's")])
    return None


def _within_limits(new: Sequence[Candidate], facts: Mapping[Key, Facts]) -> tuple[list[Candidate], dict[Key, ApiError]]:
    """Of new requests in the order in which they came, those that go in, and the others."""
    limited = limited_tenants(new, facts)
    if not limited:
        return list(new), {}
    found = refusals([candidate.request.tenant for candidate in new], buckets(limited), quotas(limited))
    over = {one.request.key: refusal for one, refusal in zip(new, found, strict=True) if refusal}
    return [one for one in new if one.request.key not in over], over


def buckets(limited: Mapping[str, Facts]) -> dict[str, Bucket]:
    """By tenant; of those that have a limit."""
    return {tenant: bucket for tenant, found in limited.items() if (bucket := found.bucket)}


def quotas(limited: Mapping[str, Facts]) -> dict[str, Quota]:
    """Likewise."""
    return {tenant: quota for tenant, found in limited.items() if (quota := found.quota)}


def limited_tenants(new: Sequence[Candidate], facts: Mapping[Key, Facts]) -> dict[str, Facts]:
    """What was found of the tenants that have a limit or a quota."""
    found = ((candidate.request.tenant, facts[candidate.request.key]) for candidate in new)
    return {tenant: facts for tenant, facts in found if facts.limit or facts.pending_quota}
