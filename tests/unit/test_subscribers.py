"""What a subscriber may be, and where a request to one goes."""

from dataclasses import replace
from uuid import UUID

import pytest

from services.scheduler import destination, subscribers
from services.scheduler.destination import Person
from services.scheduler.notification import TemplateUse
from services.scheduler.subscribers import Place, check_place
from shared.errors import AddressMissing, RequestInvalid, ResourceNotFound
from tests.recipients import PSEUDONYMS
from tests.unit.test_accept import REQUEST

ADA = Person(UUID(int=1), "ada@example.com", "de")
TO_ADA = replace(REQUEST, address="", subscriber="ada")


def fields(error: pytest.ExceptionInfo[RequestInvalid]) -> list[str]:
    return [wrong.field for wrong in error.value.violations]


def test_what_is_kept_of_one_is_canonical() -> None:
    draft = subscribers.check("ada", "Ada@EXAMPLE.com", "+44 (0)7700 900123", "token", "DE-at", "Europe/Vienna")
    assert (draft.email, draft.phone, draft.locale) == ("Ada@example.com", "+447700900123", "de-AT")
    least = subscribers.check("ada", *[""] * 5)
    assert {least.email, least.phone, least.push, least.locale, least.time_zone} == {None}


ZONES = ["Vienna", "europe/vienna", "../etc/passwd", "Europe/Vienna/..", "posixrules", "Z" * 65]


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_no_time_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(RequestInvalid) as error:
        subscribers.check("ada", "", "", "", "", zone)
    assert fields(error) == ["time_zone"]


def test_all_that_is_wrong_is_named() -> None:
    with pytest.raises(RequestInvalid) as error:
        subscribers.check("a\nb", "nobody", "none", "a b", "d", "")
    assert fields(error) == ["subscriber", "email", "phone", "push", "locale"]
    for place in (("EMAIL", ""), (None, "ada@example.com"), ("SMS", "ada@example.com")):
        with pytest.raises(RequestInvalid):
            check_place(*place)
    assert check_place(None, "") is None
    assert check_place("EMAIL", "ada@EXAMPLE.com") == Place("EMAIL", "ada@example.com")


def test_a_request_to_one_goes_to_his_address_in_his_locale_unless_it_names_another() -> None:
    use = TemplateUse("shipped", None, None, "{}")
    read = destination.completed(replace(TO_ADA, template=use), None, ADA)
    assert (read.address, read.person, read.template) == (ADA.address, ADA.id, replace(use, locale="de"))
    other = replace(use, locale="en")
    assert destination.completed(replace(TO_ADA, template=other), None, ADA).template == other
    assert destination.completed(TO_ADA, None, replace(ADA, locale=None)).template is None


@pytest.mark.parametrize("channel", ["EMAIL", "SMS", "PUSH"])
def test_nobody_is_one_thing_and_no_address_another(channel: str) -> None:
    asked = replace(TO_ADA, channel=channel)
    for person, refusal in ((None, ResourceNotFound), (replace(ADA, address=None), AddressMissing)):
        assert destination.completed(asked, "GB", person) == asked
        assert destination.unlocated(asked, None) == []  # it is no number without a country
        assert isinstance(destination.unaddressed(asked, person), refusal)
    assert destination.unaddressed(destination.completed(TO_ADA, None, ADA), ADA) is None


def test_what_stands_for_an_address_is_found_once_it_is_known() -> None:
    assert destination.named(TO_ADA, PSEUDONYMS) is TO_ADA
    national = replace(REQUEST, channel="SMS", address="07700900123")
    assert destination.named(national, PSEUDONYMS) is national
    for request in (destination.completed(TO_ADA, None, ADA), destination.completed(national, "GB", None)):
        expected = PSEUDONYMS(request.tenant, request.channel, request.address)
        assert destination.named(request, PSEUDONYMS).pseudonym == expected
