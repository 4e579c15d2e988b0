"""A locale has one spelling, and falls back step by step."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.locales import TAG, canonical_locale, fallbacks

tags = st.from_regex(TAG, fullmatch=True).filter(lambda tag: len(tag) <= 35)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("DE", "de"),
        ("de-at", "de-AT"),
        ("ZH-hant-tw", "zh-Hant-TW"),
        ("es-419", "es-419"),
        ("SL-ROZAJ-BISKE", "sl-rozaj-biske"),
        ("en-x-US", "en-x-us"),
        ("de-CH-1996", "de-CH-1996"),
    ],
)
def test_every_spelling_is_one(text: str, canonical: str) -> None:
    assert canonical_locale(text) == canonical


@pytest.mark.parametrize("text", ["", "d", "de_AT", "de-", "-de", "de--AT", "de-123456789", "dé", "de AT", "a" * 9])
def test_what_is_no_tag_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a BCP 47 language tag, as de or de-AT$"):
        canonical_locale(text)


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("de", ["de"]),
        ("de-AT", ["de-AT", "de"]),
        ("zh-Hant-TW", ["zh-Hant-TW", "zh-Hant", "zh"]),
        ("en-x-us", ["en-x-us", "en"]),
    ],
)
def test_a_locale_falls_back_to_what_is_left_of_it(locale: str, expected: list[str]) -> None:
    assert list(fallbacks(locale)) == expected


@given(tags)
def test_a_canonical_locale_is_its_own_and_falls_back_to_its_language(tag: str) -> None:
    canonical = canonical_locale(tag)
    assert canonical_locale(canonical) == canonical == canonical_locale(tag.swapcase())
    chain = list(fallbacks(canonical))
    assert (chain[0], chain[-1]) == (canonical, canonical.split("-")[0])
    assert all(longer.startswith(shorter) for longer, shorter in pairwise(chain))
