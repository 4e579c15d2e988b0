"""What every request must be before anybody looks at its meaning."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hypothesis import given
from hypothesis import strategies as st

from notifyqueue.v1 import notification_pb2, scheduler_pb2
from shared import shape
from shared.errors import RequestInvalid, Violation

UNKNOWN_FIELD = "no such field in this version"
UNKNOWN_VALUE = "no such value in this version"
NUL = "must not contain NUL characters"
NO_TIME = "not a time between the years 1 and 9999"
NO_DURATION = "not a duration"

FIELD_1000 = b"\xc0\x3e\x01"  # on the wire: number 1000, a varint, 1


def found(message: Message) -> list[tuple[str, str]]:
    return [(violation.field, violation.problem) for violation in shape.violations(message)]


def request() -> scheduler_pb2.ScheduleNotificationRequest:
    return scheduler_pb2.ScheduleNotificationRequest(
        idempotency_key="key",
        address="someone@example.com",
        email=notification_pb2.EmailContent(subject="Hello", text="line\nline\ttab", headers={"X-Tag": "a"}),
        labels={"order": "17"},
        delay=Duration(seconds=5),
        priority=notification_pb2.PRIORITY_HIGH,
    )


def stored() -> notification_pb2.Notification:
    """With messages in a repeated field."""
    return notification_pb2.Notification(
        timeline=[notification_pb2.TimelineEntry(), notification_pb2.TimelineEntry()],
    )


def tree() -> Struct:
    """With messages in a map, and maps in them."""
    return Struct(fields={"outer": Value(struct_value=Struct(fields={"inner": Value(string_value="leaf")}))})


def inner(struct: Struct) -> Value:
    return struct.fields["outer"].struct_value.fields["inner"]


@pytest.mark.parametrize("message", [request(), stored(), tree(), Timestamp(), Duration(), StringValue(value="é\n😀")])
def test_a_well_formed_message_is_fine(message: Message) -> None:
    assert found(message) == []


def test_a_field_that_this_version_does_not_know_is_found() -> None:
    message = request()
    message.MergeFromString(FIELD_1000)
    assert found(message) == [("1000", UNKNOWN_FIELD)]


@pytest.mark.parametrize(
    ("make", "part", "path"),
    [
        (request, lambda message: message.email, "email.1000"),
        (request, lambda message: message.delay, "delay.1000"),
        (stored, lambda message: message.timeline[1], "timeline[1].1000"),
        (tree, lambda struct: struct.fields["outer"], "fields.1000"),
        (tree, inner, "fields.struct_value.fields.1000"),
    ],
    ids=["nested", "in a duration", "in a repeated field", "in a map", "in a map in a map"],
)
def test_an_unknown_field_is_found_wherever_it_is(
    make: Callable[[], Message], part: Callable[[Message], Message], path: str
) -> None:
    message = make()
    part(message).MergeFromString(FIELD_1000)
    assert found(message) == [(path, UNKNOWN_FIELD)]


def test_each_unknown_field_is_named() -> None:
    message = request()
    message.MergeFromString(FIELD_1000 + b"\xc8\x3e\x01")
    message.email.MergeFromString(FIELD_1000)
    assert found(message) == [("1000", UNKNOWN_FIELD), ("1001", UNKNOWN_FIELD), ("email.1000", UNKNOWN_FIELD)]


def _priority(message: scheduler_pb2.ScheduleNotificationRequest) -> None:
    message.priority = 99  # type: ignore[assignment]


def _filter(message: scheduler_pb2.ListNotificationsRequest) -> None:
    message.filter.status = 99  # type: ignore[assignment]


def _kind(message: notification_pb2.Notification) -> None:
    message.timeline[1].kind = 99  # type: ignore[assignment]


def _null(message: Struct) -> None:
    inner(message).null_value = 99  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("make", "spoil", "path"),
    [
        (request, _priority, "priority"),
        (scheduler_pb2.ListNotificationsRequest, _filter, "filter.status"),
        (stored, _kind, "timeline[1].kind"),
        (tree, _null, "fields.struct_value.fields.null_value"),
    ],
    ids=["at the top", "nested", "in a repeated field", "in a map"],
)
def test_an_enum_value_that_this_version_does_not_know_is_found(
    make: Callable[[], Message], spoil: Callable[[Message], None], path: str
) -> None:
    message = make()
    spoil(message)
    assert found(message) == [(path, UNKNOWN_VALUE)]


def with_nul(part: Callable[[scheduler_pb2.ScheduleNotificationRequest], object]) -> Message:
    message = request()
    part(message)
    return message


@pytest.mark.parametrize(
    ("message", "path"),
    [
        pytest.param(StringValue(value="a\0"), "value", id="a field"),
        pytest.param(with_nul(lambda r: setattr(r, "address", "\0")), "address", id="a oneof"),
        pytest.param(with_nul(lambda r: setattr(r.email, "subject", "a\0b")), "email.subject", id="nested"),
        pytest.param(FieldMask(paths=["url", "\0url"]), "paths[1]", id="repeated"),
        pytest.param(with_nul(lambda r: r.labels.update({"\0": "a"})), "labels", id="a map's key"),
        pytest.param(with_nul(lambda r: r.labels.update({"a": "\0"})), "labels", id="a map's value"),
        pytest.param(with_nul(lambda r: r.email.headers.update({"a": "\0"})), "email.headers", id="a nested map"),
        pytest.param(Struct(fields={"a": Value(string_value="\0")}), "fields.string_value", id="in a map's message"),
    ],
)
def test_a_nul_is_found_in_every_kind_of_string(message: Message, path: str) -> None:
    assert found(message) == [(path, NUL)]


def test_the_same_fault_of_many_entries_of_a_map_is_one() -> None:
    message = with_nul(lambda r: r.labels.update({f"\0{number}": "\0" for number in range(50)}))
    assert found(message) == [("labels", NUL)]


def test_bytes_may_contain_a_nul() -> None:
    assert found(BytesValue(value=b"\0")) == []


FIRST, LAST = -62_135_596_800, 253_402_300_799
LONGEST = 315_576_000_000


@pytest.mark.parametrize(("seconds", "nanos"), [(FIRST, 0), (LAST, 999_999_999), (0, 0), (-1, 999_999_999), (0, 1)])
def test_a_time_between_the_years_1_and_9999_is_fine(seconds: int, nanos: int) -> None:
    assert found(Timestamp(seconds=seconds, nanos=nanos)) == []


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(FIRST - 1, 0), (LAST + 1, 0), (2**63 - 1, 0), (-(2**63), 0), (0, -1), (0, 1_000_000_000), (5, -(2**31))],
)
def test_any_other_time_is_found(seconds: int, nanos: int) -> None:
    message = scheduler_pb2.ScheduleNotificationRequest(due_time=Timestamp(seconds=seconds, nanos=nanos))
    assert found(message) == [("due_time", NO_TIME)]


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(LONGEST, 0), (-LONGEST, 0), (LONGEST, 999_999_999), (-1, -1), (0, -999_999_999), (0, 1), (1, 0), (-1, 0)],
)
def test_a_duration_of_one_sign_is_fine(seconds: int, nanos: int) -> None:
    assert found(Duration(seconds=seconds, nanos=nanos)) == []


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (LONGEST + 1, 0),
        (-LONGEST - 1, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
        (0, 1_000_000_000),
        (0, -1_000_000_000),
        (1, -1),
        (-1, 1),
    ],
)
def test_any_other_duration_is_found(seconds: int, nanos: int) -> None:
    message = scheduler_pb2.ScheduleNotificationRequest(delay=Duration(seconds=seconds, nanos=nanos))
    assert found(message) == [("delay", NO_DURATION)]


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))  # noqa: DTZ001
def test_whatever_python_calls_a_time_is_fine(time: datetime) -> None:
    message = Timestamp()
    message.FromDatetime(time.replace(tzinfo=UTC))
    assert found(message) == []


@given(st.timedeltas(timedelta(seconds=-LONGEST), timedelta(seconds=LONGEST)))
def test_whatever_python_calls_a_duration_is_fine(span: timedelta) -> None:
    message = Duration()
    message.FromTimedelta(span)
    assert found(message) == []


@given(seconds=st.integers(-(2**63), 2**63 - 1), nanos=st.integers(-(2**31), 2**31 - 1))
def test_what_passes_can_be_turned_into_pythons_own_types(seconds: int, nanos: int) -> None:
    time, span = Timestamp(seconds=seconds, nanos=nanos), Duration(seconds=seconds, nanos=nanos)
    if not found(time):
        time.ToDatetime(UTC)
    if not found(span):
        span.ToTimedelta()


SECRET = "hunter2"


def test_no_violation_carries_what_was_sent() -> None:
    message = request()
    message.address = f"{SECRET}\0"
    message.labels[f"{SECRET}\0"] = f"{SECRET}\0"
    message.email.headers[f"{SECRET}\0"] = SECRET
    message.MergeFromString(b"\xc2\x3e\x07hunter2")  # number 1000, as text
    violations: Sequence[Violation] = list(shape.violations(message))
    assert len(violations) == 4
    assert SECRET not in repr(violations)


def test_the_items_of_a_batch_are_left_to_who_answers_them_one_by_one() -> None:
    wrong = request()
    wrong.reference = "\0"
    batch = scheduler_pb2.BatchScheduleNotificationsRequest(requests=[wrong])
    assert found(batch) == []
    assert found(batch.requests[0]) == [("reference", NUL)]
    batch.MergeFromString(FIELD_1000)
    assert found(batch) == [("1000", UNKNOWN_FIELD)]


def test_a_message_is_refused_with_at_most_20_faults() -> None:
    wrong = request()
    wrong.MergeFromString(FIELD_1000 * 25)
    with pytest.raises(RequestInvalid) as error:
        shape.check(wrong)
    assert len(error.value.violations) == 20
    shape.check(request())
