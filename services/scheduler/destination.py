"""Where a request goes, once its tenant is read: a national number gets its country, a subscriber his address. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import UUID

from services.scheduler.notification import Request, TemplateUse
from services.scheduler.phones import in_region, is_national
from shared.errors import AddressMissing, ApiError, ResourceNotFound, Violation

Pseudonyms: TypeAlias = Callable[[str, str, str], str]
"""What stands for a tenant's address on a channel (shared/pseudonym.py), with this installation's key."""


@dataclass(frozen=True, slots=True)
class Person:
    """A subscriber as he was read."""

    id: UUID
    address: str | None = field(repr=False)
    """On the request's channel."""
    locale: str | None


def is_whole(request: Request) -> bool:
    """Whether it is known where it goes."""
    return request.address != "" and not is_national(request.channel, request.address)


def completed(request: Request, region: str | None, person: Person | None) -> Request:
    """With its address, where that can be known; else as it is, to be refused."""
    if is_whole(request):
        return request
    if request.subscriber is None:
        try:
            return replace(request, address=in_region(request.address, region))
        except ValueError:  # it is refused with all its other faults
            return request
    if person is None or person.address is None:
        return request
    return replace(
        request, address=person.address, person=person.id, template=_in_locale(request.template, person.locale)
    )


def _in_locale(use: TemplateUse | None, locale: str | None) -> TemplateUse | None:
    """In the subscriber's, where the request says none."""
    return replace(use, locale=locale) if use and use.locale is None and locale else use


def named(request: Request, pseudonyms: Pseudonyms) -> Request:
    """With what stands for its address, where that is known."""
    if request.pseudonym is not None or not is_whole(request):
        return request
    return replace(request, pseudonym=pseudonyms(request.tenant, request.channel, request.address))


def unlocated(request: Request, region: str | None) -> list[Violation]:
    """What is wrong with a number that has no country."""
    if request.subscriber is not None or is_whole(request):
        return []
    try:
        in_region(request.address, region)
    except ValueError as error:
        return [Violation("address", str(error))]
    return []


def unaddressed(request: Request, person: Person | None) -> ApiError | None:
    """Why it goes nowhere."""
    if request.subscriber is None or is_whole(request):
        return None
    return ResourceNotFound("subscriber") if person is None else AddressMissing()
