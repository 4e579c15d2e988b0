"""What an HTTP answer asks for by Retry-After (RFC 9110, section 10.2.3)."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST_WAIT = timedelta(hours=24)
LONGEST_VALUE = 64  # characters; an HTTP date has 29
SECONDS = re.compile(r"[0-9]+", re.ASCII)


def retry_after(value: str, now: datetime | None) -> timedelta:
    """Seconds or a date, at most a day; nothing if it makes no sense, or it is a date and nobody knows what time it is.

    Whoever answers writes it, so whatever it is, it raises nothing.
    """
    value = value.strip()
    if SECONDS.fullmatch(value):
        digits = value.lstrip("0")  # a long number is not read: Python refuses thousands of digits
        return min(timedelta(seconds=int(digits or "0")), LONGEST_WAIT) if len(digits) <= 6 else LONGEST_WAIT
    moment = http_date(value)
    return min(max(moment - now, timedelta()), LONGEST_WAIT) if moment and now else timedelta()


def http_date(value: str) -> datetime | None:
    """None where it is none. It raises nothing, likewise."""
    if len(value) > LONGEST_VALUE:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC)
