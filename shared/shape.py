"""What every request must be, whatever it asks for: only fields and values that the contract knows, no NUL, real times.

PostgreSQL cannot store a NUL in text, and a field that this version does not know would be dropped without a word.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from shared.errors import MAX_VIOLATIONS, RequestInvalid, Violation

# google/protobuf/timestamp.proto and duration.proto: years 1 to 9999, and as many seconds either way.
TIMESTAMP_SECONDS = range(-62_135_596_800, 253_402_300_800)
DURATION_SECONDS = range(-315_576_000_000, 315_576_000_001)
NANOS = 1_000_000_000

# What is answered one by one is also checked one by one, by the service: a wrong item costs the others nothing.
APART = frozenset({"notifyqueue.v1.BatchScheduleNotificationsRequest.requests"})


def check(message: Message) -> None:
    """Raises RequestInvalid."""
    if found := list(islice(violations(message), MAX_VIOLATIONS)):
        raise RequestInvalid(found)


def violations(message: Message, path: str = "") -> Iterator[Violation]:
    """What is wrong with a message before anybody looks at its meaning."""
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        yield Violation(f"{path}{unknown[index].field_number}", "no such field in this version")
    if isinstance(message, Timestamp):
        if message.seconds not in TIMESTAMP_SECONDS or not 0 <= message.nanos < NANOS:
            yield Violation(path.removesuffix("."), "not a time between the years 1 and 9999")
    elif isinstance(message, Duration):
        if not _is_duration(message):
            yield Violation(path.removesuffix("."), "not a duration")
    else:
        for field, value in message.ListFields():
            yield from _of_field(field, value, f"{path}{field.name}")


def _of_field(field: FieldDescriptor, value: object, name: str) -> Iterator[Violation]:
    entry = field.message_type
    if entry and entry.GetOptions().map_entry:
        yield from dict.fromkeys(_of_map(entry, value, name))  # type: ignore[arg-type]
    elif field.full_name in APART:
        return
    elif field.is_repeated:
        for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
            yield from _of_value(field, item, f"{name}[{index}]")
    else:
        yield from _of_value(field, value, name)


def _of_map(entry: Descriptor, items: Mapping[object, object], name: str) -> Iterator[Violation]:
    # Under the name of the map alone, for a key is the caller's own word; so one fault of many items is said once.
    for key, value in items.items():
        yield from _of_value(entry.fields_by_name["key"], key, name)
        yield from _of_value(entry.fields_by_name["value"], value, name)


def _of_value(field: FieldDescriptor, value: object, name: str) -> Iterator[Violation]:
    if isinstance(value, Message):
        yield from violations(value, f"{name}.")
    elif isinstance(value, str):
        if "\0" in value:
            yield Violation(name, "must not contain NUL characters")
    elif field.enum_type and value not in field.enum_type.values_by_number:
        yield Violation(name, "no such value in this version")


def _is_duration(duration: Duration) -> bool:
    same_sign = duration.seconds * duration.nanos >= 0
    return duration.seconds in DURATION_SECONDS and abs(duration.nanos) < NANOS and same_sign
