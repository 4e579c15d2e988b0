"""How a text message travels: its encoding, and the segments that it is split into, each of which is paid for.

The alphabet and its extension are those of 3GPP TS 23.038, 6.2.1 and 6.2.1.1. What is in neither makes the whole
message UCS-2. Several segments have a header each, which takes the room of seven septets, or of three UTF-16 units.
"""

from collections.abc import Callable
from dataclasses import dataclass

BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = frozenset("\f^{}\\[~]|€")  # two septets: an escape, and the character


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str
    alone: int
    """Units that a message of one segment has at most."""
    joined: int
    """Units that each of several segments has at most."""
    units: Callable[[str], int]
    """Of one character."""


GSM_7 = Encoding("GSM_7", 160, 153, lambda character: 2 if character in EXTENSION else 1)
UCS_2 = Encoding("UCS_2", 70, 67, lambda character: 2 if character > "\uffff" else 1)


@dataclass(frozen=True, slots=True)
class Size:
    encoding: str
    segments: int
    units: int


def size(text: str) -> Size:
    encoding = encoding_of(text)
    return Size(encoding.name, len(split(text)), sum(map(encoding.units, text)))


def encoding_of(text: str) -> Encoding:
    return GSM_7 if BASIC.union(EXTENSION).issuperset(text) else UCS_2


def split(text: str) -> list[str]:
    """The segments. A character of two units is in one of them: neither a surrogate pair nor an escape is split."""
    encoding = encoding_of(text)
    if sum(map(encoding.units, text)) <= encoding.alone:
        return [text]
    segments, begin, room = [], 0, encoding.joined
    for position, character in enumerate(text):
        units = encoding.units(character)
        if units > room:
            segments.append(text[begin:position])
            begin, room = position, encoding.joined
        room -= units
    return [*segments, text[begin:]]
