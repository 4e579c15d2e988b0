"""Segments are counted as networks count them, and no character is cut in two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.segments import BASIC, EXTENSION, GSM_7, UCS_2, encoding_of, size, split

FACE = "\N{GRINNING FACE}"
gsm = st.text(st.sampled_from(sorted(BASIC | EXTENSION)), max_size=700)
ucs = st.text(st.sampled_from([*"aä€ł", FACE, "\N{PILE OF POO}", "中"]), max_size=400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("GSM_7", 1, 0)),
        ("a" * 160, ("GSM_7", 1, 160)),
        ("a" * 161, ("GSM_7", 2, 161)),
        ("a" * 306, ("GSM_7", 2, 306)),
        ("a" * 307, ("GSM_7", 3, 307)),
        ("€" * 80, ("GSM_7", 1, 160)),
        ("€" * 80 + "a", ("GSM_7", 2, 161)),
        ("a" * 152 + "€" * 77, ("GSM_7", 3, 306)),  # the escape that does not fit goes to the next one
        ("^{}[]~\\|€\f", ("GSM_7", 1, 20)),
        ("@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà", ("GSM_7", 1, 44)),
        ("ł" * 70, ("UCS_2", 1, 70)),
        ("ł" * 71, ("UCS_2", 2, 71)),
        ("ł" * 134, ("UCS_2", 2, 134)),
        ("ł" * 135, ("UCS_2", 3, 135)),
        (FACE * 35, ("UCS_2", 1, 70)),
        ("ł" * 66 + FACE * 34, ("UCS_2", 3, 134)),  # nor is a surrogate pair cut
        ("ç", ("UCS_2", 1, 1)),  # only the capital is in the alphabet
        ("`", ("UCS_2", 1, 1)),
        ("\t", ("UCS_2", 1, 1)),
        ("[]" + "ł", ("UCS_2", 1, 3)),  # these count one there
    ],
)
def test_a_message_is_as_many_segments_as_a_network_makes_of_it(text: str, expected: tuple[str, int, int]) -> None:
    found = size(text)
    assert (found.encoding, found.segments, found.units) == expected


def test_the_alphabet_has_its_127_characters_and_ten_more() -> None:
    assert (len(BASIC), len(EXTENSION)) == (127, 10)  # 128 with the escape


@given(gsm)
def test_no_escape_is_cut_and_nothing_is_lost(text: str) -> None:
    assert encoding_of(text) is GSM_7
    assert_split(text, [len(part) + sum(map(part.count, EXTENSION)) for part in split(text)], 160, 153)


@given(ucs)
def test_no_surrogate_pair_is_cut_and_nothing_is_lost(text: str) -> None:
    if encoding_of(text) is UCS_2:
        assert_split(text, [len(part.encode("utf-16-le")) // 2 for part in split(text)], 70, 67)


def assert_split(text: str, units: list[int], alone: int, joined: int) -> None:
    assert "".join(split(text)) == text
    assert sum(units) == size(text).units
    assert len(units) == size(text).segments
    assert max(units) <= (alone if len(units) == 1 else joined)
    assert (len(units) == 1) == (sum(units) <= alone)
    # As few as can be: a segment is left with room for no further character.
    assert all(count >= joined - 1 for count in units[:-1])
