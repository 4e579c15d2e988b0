"""What Resend's answers to `POST /emails` mean, by the names in its list of errors."""

from datetime import timedelta

from services.worker.providers import Answer
from services.worker.providers.answers import CLASSES, TAKEN, Row, Table

QUOTA_REST = timedelta(hours=1)
BUSY_REST = timedelta(seconds=5)

TABLE: Table = (
    TAKEN,
    Row("401", "missing_api_key", Answer.MISCONFIGURED, "no API key"),
    Row("401", "restricted_api_key", Answer.MISCONFIGURED, "the key may not do this"),
    Row("403", "invalid_api_key", Answer.MISCONFIGURED, "the API key is wrong"),
    Row("403", "validation_error", Answer.MISCONFIGURED, "the sender's domain is not verified"),
    Row("422", "invalid_from_address", Answer.MISCONFIGURED, "the sender is malformed"),
    Row("422", "invalid_access", Answer.MISCONFIGURED, "the key may not do this"),
    Row("422", "invalid_region", Answer.MISCONFIGURED, "the account's region"),
    Row("400", "invalid_idempotency_key", Answer.MISCONFIGURED, "the key has more than 256 characters"),
    # Something was taken under this key, and it was not this body: another sender in the settings, or another version.
    Row("409", "invalid_idempotent_request", Answer.UNKNOWN, "an earlier attempt with another body was taken"),
    Row("409", "concurrent_idempotent_requests", Answer.TRANSIENT, "an earlier attempt is under way", rest=BUSY_REST),
    Row("429", "daily_quota_exceeded", Answer.THROTTLED, "the quota of the day", rest=QUOTA_REST),
    Row("429", "monthly_quota_exceeded", Answer.THROTTLED, "the quota of the month", rest=QUOTA_REST),
    Row("429", "rate_limit_exceeded", Answer.THROTTLED, "too many requests", rest=timedelta(seconds=1)),
    Row("400", "validation_error", Answer.PERMANENT_MESSAGE, "a field is wrong"),
    Row("422", "validation_error", Answer.PERMANENT_MESSAGE, "a field is wrong"),
    Row("422", "missing_required_field", Answer.PERMANENT_MESSAGE, "a field is missing"),
    Row("422", "invalid_parameter", Answer.PERMANENT_MESSAGE, "a field is wrong"),
    Row("422", "invalid_attachment", Answer.PERMANENT_MESSAGE, "an attachment is wrong"),
    Row("451", "security_error", Answer.PERMANENT_MESSAGE, "it looks like an attack"),
    Row("500", "application_error", Answer.UNKNOWN, "an error inside Resend"),
    Row("500", "internal_server_error", Answer.UNKNOWN, "an error inside Resend"),
    *CLASSES,
)

# Where the notification names a sender of its own, a refusal of the sender is of that notification, and no reason to
# give the lane up.
OWN_SENDER: Table = (
    Row("403", "validation_error", Answer.PERMANENT_MESSAGE, "the notification's own sender is not verified"),
    Row("4??", "invalid_from_address", Answer.PERMANENT_MESSAGE, "the notification's own sender is refused"),
    *TABLE,
)
