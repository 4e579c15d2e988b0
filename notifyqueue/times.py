"""Times and spans as messages have them."""

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def to_timestamp(time: datetime) -> Timestamp:
    """Raises ValueError for a time without a zone, which would silently be taken for UTC."""
    if time.tzinfo is None:
        raise ValueError("a time needs a zone")
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp


def to_duration(span: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(span)
    return duration
