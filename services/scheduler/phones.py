"""Telephone numbers in E.164, the form that names a country: at once where they say it, else by the tenant's region.

A number has to be *possible*, not *valid* as the library calls it: that asks whether the range is assigned, by a list
as old as the installed version, and would refuse newly assigned numbers and the fictitious ones that tests are made of.
Whether anybody answers there is for the provider to say.
"""

import re

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumberFormat, ValidationResult

MAX_LENGTH = 64

# What a number is written with. Letters, an extension or a second number belong to none that takes messages.
WRITTEN = re.compile(r"\s*\(?\s*[+\uff0b]?[\d\s().\-/\u2010-\u2015\u2212]+")
MIN_DIGITS, MAX_DIGITS = 4, 20  # E.164 has at most 15, and what is dialled before it for another country

NOT_A_NUMBER = "is not a telephone number"


def canonical_phone(text: str) -> str:
    """E.164; or, without a country code, the digits alone, which `in_region` completes.

    Raises ValueError; its message says what is wrong and quotes nothing.
    """
    if len(text) > MAX_LENGTH or not WRITTEN.fullmatch(text):
        raise ValueError(NOT_A_NUMBER)
    if "+" in text or "\uff0b" in text:
        return _e164(text, None)
    digits = phonenumbers.normalize_digits_only(text)
    if not MIN_DIGITS <= len(digits) <= MAX_DIGITS:
        raise ValueError(NOT_A_NUMBER)
    return digits


def is_national(channel: str, address: str) -> bool:
    """Whether a canonical address still lacks its country."""
    return channel == "SMS" and not address.startswith("+")


def in_region(digits: str, region: str | None) -> str:
    """E.164 of a national number. Raises ValueError as above."""
    if region is None:
        raise ValueError("needs its country code, for the tenant has no region")
    return _e164(digits, region)


def _e164(text: str, region: str | None) -> str:
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        raise ValueError(NOT_A_NUMBER) from None
    # Not is_possible_number, which is content with a number that can be dialled only from its own town.
    if phonenumbers.is_possible_number_with_reason(number) != ValidationResult.IS_POSSIBLE:
        raise ValueError(NOT_A_NUMBER)
    return phonenumbers.format_number(number, PhoneNumberFormat.E164)
