"""A telephone number has one spelling, however it was written; rubbish has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.addresses import CANONICAL
from services.scheduler.phones import canonical_phone, in_region, is_national

DRAMA = "+447700900123"  # Ofcom keeps 07700 900000 to 900999 for films


@pytest.mark.parametrize(
    "written",
    [
        "+447700900123",
        "+44 7700 900123",
        "+44 (0)7700 900123",
        "+44(0)7700900123",
        "+44 (0) 7700 900 123",
        "(+44) 7700-900-123",
        " +44.7700/900123 ",
        "\uff0b44\u00a07700\u2010900\u2011123",
        "+\u0664\u0664\u0667\u0667\u0660\u0660\u0669\u0660\u0660\u0661\u0662\u0663",
    ],
)
def test_a_number_with_its_country_code_is_one_however_it_is_written(written: str) -> None:
    assert canonical_phone(written) == DRAMA


@pytest.mark.parametrize(
    "written", ["07700 900123", "07700-900123", "(07700) 900123", "7700 900123", "00 44 7700 900123"]
)
def test_a_national_number_is_the_same_one_in_its_region(written: str) -> None:
    digits = canonical_phone(written)
    assert is_national("SMS", digits)
    assert in_region(digits, "GB") == DRAMA


@pytest.mark.parametrize(
    ("written", "region", "canonical"),
    [
        ("(202) 555-0132", "US", "+12025550132"),  # 555-0100 to 555-0199 belong to nobody
        ("011 44 7700 900123", "US", DRAMA),
        ("0170 1234567", "DE", "+491701234567"),
        ("06 698 12345", "IT", "+390669812345"),  # whose zero is part of the number
    ],
)
def test_a_region_says_what_a_national_number_means(written: str, region: str, canonical: str) -> None:
    assert in_region(canonical_phone(written), region) == canonical


@pytest.mark.parametrize("digits", ["7700900999", "2025550100", "2025550199"])
def test_fictitious_numbers_are_numbers(digits: str) -> None:
    region = {"7": "GB", "2": "US"}[digits[0]]
    assert canonical_phone(in_region(digits, region)) == in_region(digits, region)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "+",
        "+44",
        "+999 123456",
        "+44 7700",
        "+44 7700 900123 4567",
        "+1 555 0132",  # to be dialled only from its own town
        "123",
        "1" * 21,
        "0" * 65,
        "someone@example.com",
        "1-800-FLOWERS",
        "+44 7700 900123 ext 5",
        "+44 7700 900123;ext=5",
        "+44 7700 900123x5",
        "tel:+447700900123",
        "+44 7700 900123, +44 7700 900124",
        "++447700900123",
        "+44 7700 900123#",
        "+44 7700 \x00900123",
        "call +447700900123",
    ],
)
def test_what_is_no_number_is_refused_without_its_words(written: str) -> None:
    with pytest.raises(ValueError, match=r"^is not a telephone number$"):
        canonical_phone(written)


@pytest.mark.parametrize("digits", ["770090", "770090012345", "0770090012345678"])
def test_what_is_no_number_in_its_region_is_refused(digits: str) -> None:
    with pytest.raises(ValueError, match=r"^is not a telephone number$"):
        in_region(digits, "GB")


def test_without_a_region_a_number_has_to_name_its_country() -> None:
    with pytest.raises(ValueError, match="needs its country code"):
        in_region("07700900123", None)


def test_only_a_telephone_number_can_lack_its_country() -> None:
    assert not is_national("SMS", DRAMA)
    assert not is_national("PUSH", "07700900123")


@given(st.one_of(st.from_regex(r"\+?[0-9() -]{1,20}", fullmatch=True), st.text(max_size=20)))
def test_a_canonical_number_is_its_own_canonical_form(written: str) -> None:
    try:
        canonical = canonical_phone(written)
    except ValueError:
        return
    assert canonical_phone(canonical) == canonical
    assert canonical.isascii()


@pytest.mark.parametrize("token", ["t", "APA91b:x_-." * 20, "!" * 2_048])
def test_a_token_is_what_it_is(token: str) -> None:
    assert CANONICAL["PUSH"](token) == token
