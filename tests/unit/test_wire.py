"""What is asked of a request before it is decoded, and that what is refused never is."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from notifyqueue.v1 import dispatcher_pb2, notification_pb2, scheduler_pb2
from shared.errors import RequestInvalid
from shared.wire import MAX_FIELDS, MAX_ITEMS, MAX_LARGE, MAX_REQUEST, Encoded

Batch, Request = scheduler_pb2.BatchScheduleNotificationsRequest, scheduler_pb2.ScheduleNotificationRequest

EMPTY_ITEM = b"\x0a\x00"
UNKNOWN = b"\xc0\x3e\x01"  # number 1000, a varint, 1


class Kind:
    """Counts how often it is decoded."""

    def __init__(self, kind: Any) -> None:
        self.DESCRIPTOR = kind.DESCRIPTOR
        self._kind = kind
        self.decoded = 0

    def FromString(self, data: bytes) -> Message:
        self.decoded += 1
        message: Message = self._kind.FromString(data)
        return message


async def refused(data: bytes, kind: Any, *, most: int = MAX_LARGE) -> str:
    """The field that is named, without a decoding."""
    watched = Kind(kind)
    with pytest.raises(RequestInvalid) as error:
        await Encoded(data, watched).decode(most=most)
    assert watched.decoded == 0
    (violation,) = error.value.violations
    return violation.field


async def passes(message: Message, *, most: int = MAX_LARGE) -> bool:
    return bool(await Encoded(message.SerializeToString(), type(message)).decode(most=most) == message)


def item(key: str = "key", **fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    return Request(idempotency_key=key, **fields)


def largest() -> scheduler_pb2.ScheduleNotificationRequest:
    """Of all that is accepted the one with the most fields."""
    email = notification_pb2.EmailContent(
        subject="s",
        text="t",
        html="h",
        sender="a@x.org",
        reply_to="a@x.org",
        headers={f"X-{n}": "v" for n in range(20)},
    )
    return item(
        address="a@x.org",
        email=email,
        labels={f"{n}": "v" * 255 for n in range(16)},
        due_time={"seconds": 1, "nanos": 1},
        ttl={"seconds": 1, "nanos": 1},
        priority=notification_pb2.PRIORITY_HIGH,
        at_most_once=True,
        category="c",
        reference="r",
    )


async def test_a_small_request_is_decoded() -> None:
    assert await passes(item())
    assert await passes(StringValue())


async def test_the_largest_that_is_accepted_passes_alone_and_a_thousand_times_in_a_batch() -> None:
    assert await passes(largest(), most=MAX_REQUEST)
    small = largest()
    small.labels.update({f"{n}": "v" for n in range(16)})
    assert await passes(Batch(requests=[small] * MAX_ITEMS))


@pytest.mark.parametrize("count", [MAX_ITEMS + 1, 2_000_000])
async def test_a_batch_of_too_many_is_refused_undecoded(count: int) -> None:
    assert await refused(EMPTY_ITEM * count, Batch) == "requests"


# What two bytes or a few are made of, many times over, and the field that is named.
FLOODS: Mapping[str, tuple[Any, bytes, str]] = {
    "unknown fields": (Request, UNKNOWN, "1000"),
    "unknown groups": (Request, b"\xc3\x3e\xc4\x3e", "1000"),
    "contents that replace each other": (Request, b"\x22\x00\x2a\x00", "email"),
    "entries of a map": (Request, b"\x82\x01\x00", "labels"),
    "repeated texts": (dispatcher_pb2.CreateEndpointRequest, b"\x12\x00", "event_types"),
    "a field that is there again": (StringValue, b"\x0a\x00", "value"),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_request_of_too_many_fields_is_refused_undecoded(flood: str) -> None:
    kind, piece, field = FLOODS[flood]
    assert await refused(piece * MAX_FIELDS * 2, kind) == field


@pytest.mark.parametrize("flood", [name for name, (kind, _, _) in FLOODS.items() if kind is Request])
async def test_an_item_of_too_many_fields_is_refused_undecoded_by_its_place(flood: str) -> None:
    _, piece, _ = FLOODS[flood]
    wrong = Batch(requests=[item()]).SerializeToString() + field_of(1, piece * MAX_FIELDS * 2)
    assert await refused(wrong, Batch) == "requests[1]"


def field_of(number: int, data: bytes) -> bytes:
    size, length = bytearray(), len(data)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + data


async def test_fields_of_what_is_nested_count() -> None:
    headers = {f"X-{n}": "v" for n in range(MAX_FIELDS // 3)}
    assert await refused(item(email={"headers": headers}).SerializeToString(), Request) == "email"
    assert await passes(item(email={"headers": dict.fromkeys(list(headers)[:50], "v")}))


async def test_fields_that_are_many_together_are_too_many() -> None:
    values = ListValue()
    values.extend(["v"] * (MAX_FIELDS // 2))
    assert await passes(values)
    values.extend(["v"])
    assert await refused(values.SerializeToString(), ListValue) == "values"


async def test_what_is_nested_very_deep_is_no_message() -> None:
    data = b""
    for _ in range(200):
        data = field_of(1, field_of(2, field_of(5, data))) if len(data) < 20_000 else data
    with pytest.raises(RequestInvalid):
        await Encoded(data, Struct).decode()


async def test_a_request_has_a_bound_of_bytes_and_is_told_its_own() -> None:
    long = StringValue(value="v" * MAX_REQUEST).SerializeToString()
    with pytest.raises(RequestInvalid, match=f"request: has {len(long)} bytes, more than {MAX_REQUEST}"):
        await Encoded(long, StringValue).decode()
    assert await refused(long, StringValue, most=MAX_REQUEST) == ""


async def test_a_batch_is_judged_in_turns_with_others() -> None:
    turns = 0

    async def somebody() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(somebody())
    await Encoded(Batch(requests=[largest()] * 500).SerializeToString(), Batch).decode(most=MAX_LARGE)
    other.cancel()
    assert turns >= 5


@given(st.binary(max_size=700))
async def test_whatever_is_decoded_would_have_been_decoded_anyway_and_nothing_else_raises(data: bytes) -> None:
    try:
        decoded = await Encoded(data, Request).decode()
    except RequestInvalid:
        return
    assert decoded == Request.FromString(data)


TEXTS = st.text(max_size=40)


@given(
    st.builds(
        item,
        TEXTS,
        reference=TEXTS,
        sms=st.builds(notification_pb2.SmsContent, text=TEXTS),
        labels=st.dictionaries(TEXTS, TEXTS, max_size=30),
        priority=st.sampled_from(notification_pb2.Priority.values()),
    )
)
async def test_every_request_of_few_fields_passes(message: Message) -> None:
    assert await passes(message)
