"""A request as it came, and what is asked of it before it is decoded: that it is small, and of few fields.

Decoded, two bytes can be a message of hundreds. So nothing is decoded for a caller that is not let in, and nothing that
has more fields than a request can need, however many of them the contract knows.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from shared.errors import RequestInvalid, Violation
from shared.shape import APART

MAX_REQUEST = 256 * 1024  # more than twice what the largest one that is accepted has
MAX_LARGE = 4 * 1024 * 1024
MAX_FIELDS = 256  # nested ones and entries of maps included; one that is accepted has less than 150
SMALL = 2 * MAX_FIELDS  # of bytes: there is no field of less than two
MAX_ITEMS = 1_000  # of what is answered one by one: each may have as many fields
SLICE = 50  # of them, between two turns of the loop

# The wire types of a field (protobuf.dev, "Encoding"). A group begins and ends with one of its own each, and no bytes.
VARINT, FIXED_64, BYTES, GROUP, GROUP_END, FIXED_32 = range(6)
WIDTHS = {FIXED_64: 8, GROUP: 0, GROUP_END: 0, FIXED_32: 4}
MAX_VARINT = 10


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request that nobody has decoded yet. `kind` is the class of its message."""

    data: bytes = field(repr=False)
    kind: Any

    async def decode(self, *, most: int = MAX_REQUEST) -> Message:
        """`most` is how many bytes it may have. Raises RequestInvalid."""
        check_size(len(self.data), most)
        try:
            for number, _ in enumerate(_judged(self.data, self.kind.DESCRIPTOR)):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
            message: Message = self.kind.FromString(self.data)
        except (DecodeError, _Broken):
            raise RequestInvalid([Violation("", "not a message of this type")]) from None
        return message


def check_size(size: int, most: int = MAX_REQUEST) -> None:
    """Raises RequestInvalid."""
    if size > most:
        raise RequestInvalid([Violation("", f"has {size} bytes, more than {most}")])


class _Broken(Exception):
    """These bytes are no message."""


class _Part(NamedTuple):
    """A field on the wire: its number, and where its bytes are. What is no text, bytes or message has none."""

    number: int
    start: int
    end: int


def _judged(data: bytes, kind: Descriptor) -> Iterator[None]:
    """Raises RequestInvalid, where a request has too many fields or items. Stops after each item."""
    fields = items = 0
    for part in _parts(data, 0, len(data)):
        known = kind.fields_by_number.get(part.number)
        if known and known.full_name in APART:
            items += 1
            _check_item(data, known, part, items)
            yield
        else:
            fields += 1 + _count(data, known, part)
        if fields > MAX_FIELDS:
            name = known.name if known else str(part.number)
            raise RequestInvalid([Violation(name, f"the request has more than {MAX_FIELDS} fields and entries")])


def _check_item(data: bytes, known: FieldDescriptor, part: _Part, number: int) -> None:
    if number > MAX_ITEMS:
        raise RequestInvalid([Violation(known.name, f"must have at most {MAX_ITEMS} entries")])
    if part.end - part.start > SMALL and _count(data, known, part) > MAX_FIELDS:
        name = f"{known.name}[{number - 1}]"
        raise RequestInvalid([Violation(name, f"has more than {MAX_FIELDS} fields and entries")])


def _count(data: bytes, known: FieldDescriptor | None, part: _Part) -> int:
    """How many fields are in this one; no further than it is too many."""
    found = 0
    open_ = [(known, part)]
    while open_:
        known, part = open_.pop()
        if known is None or part.start == part.end or (kind := known.message_type) is None:
            continue
        for inner in _parts(data, part.start, part.end):
            found += 1
            if found > MAX_FIELDS:
                return found
            open_.append((kind.fields_by_number.get(inner.number), inner))
    return found


def _parts(data: bytes, at: int, end: int) -> Iterator[_Part]:
    """The fields of a message, not those within them. Raises _Broken."""
    while at < end:
        tag, start = _varint(data, at)
        wire_type = tag & 7
        if wire_type == VARINT:
            _, start = _varint(data, start)
            at = start
        elif wire_type == BYTES:
            size, start = _varint(data, start)
            at = start + size
        elif wire_type in WIDTHS:
            at = start = start + WIDTHS[wire_type]
        else:
            raise _Broken
        if at > end:
            raise _Broken
        yield _Part(tag >> 3, start, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises _Broken."""
    if at < len(data) and data[at] < 0x80:  # most have one byte
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : at + MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise _Broken
