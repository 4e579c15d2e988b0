"""What the answers of FCM's HTTP v1 API mean.

A code is FCM's own where the answer has one (`FcmError`); `rpc.` stands before Google's status where it has none, and
`field.` where the answer names fields of the request. For a request that is wrong and a token that is none FCM says
the same status: a token is given up only where no field is named and the words are about it.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from services.worker.providers import Answer
from services.worker.providers.answers import CLASSES, TAKEN, Reply, Row, Table

FCM_ERROR = "google.firebase.fcm.v1.FcmError"
BAD_REQUEST = "google.rpc.BadRequest"
QUOTA_FAILURE = "google.rpc.QuotaFailure"

QUOTA_REST = timedelta(seconds=60)  # documented: where no Retry-After is set
AWAY_REST = timedelta(seconds=10)  # documented: before the first repetition

TABLE: Table = (
    TAKEN,
    Row("404", "UNREGISTERED", Answer.PERMANENT_ADDRESS, "the app was removed, or the token renewed"),
    Row("400", "INVALID_ARGUMENT", Answer.PERMANENT_ADDRESS, "no token", words="registration token"),
    # Where all tokens are another project's, the breaker takes it for what it is: credentials of the wrong project.
    Row("403", "SENDER_ID_MISMATCH", Answer.PERMANENT_ADDRESS, "the token belongs to another project"),
    Row("400", "field.*", Answer.PERMANENT_MESSAGE, "a field is wrong: too long, a reserved key"),
    Row("400", "INVALID_ARGUMENT", Answer.PERMANENT_MESSAGE, "refused, and not for the token"),
    Row("401", "THIRD_PARTY_AUTH_ERROR", Answer.MISCONFIGURED, "the project's APNs or web push key"),
    Row("401", "APNS_AUTH_ERROR", Answer.MISCONFIGURED, "the same, as it was called before"),
    Row("401", "rpc.UNAUTHENTICATED", Answer.MISCONFIGURED, "the access token"),
    Row("403", "rpc.PERMISSION_DENIED", Answer.MISCONFIGURED, "the account may not send for this project"),
    Row("404", "rpc.NOT_FOUND", Answer.MISCONFIGURED, "there is no such project"),
    # One busy device is no reason to make the others wait.
    Row("429", "QUOTA_EXCEEDED", Answer.TRANSIENT, "too much for this device", words=r"\bdevice\b", rest=QUOTA_REST),
    Row("429", "QUOTA_EXCEEDED", Answer.THROTTLED, "too much for the project, or for a topic", rest=QUOTA_REST),
    Row("429", "*", Answer.THROTTLED, "too much at once", rest=QUOTA_REST),
    Row("500", "INTERNAL", Answer.UNKNOWN, "an error inside FCM", rest=AWAY_REST),
    Row("503", "UNAVAILABLE", Answer.TRANSIENT, "away, and nothing was sent: FCM asks to try again", rest=AWAY_REST),
    Row("503", "*", Answer.TRANSIENT, "the same, from what stands before FCM", rest=AWAY_REST),
    *CLASSES,
)

# Of a request for an access token. Nothing has been sent when there is none, so whatever may be tried again is safe.
TOKENS: Table = (
    Row("2??", "*", Answer.TRANSIENT, "no access token in it"),
    Row("400", "invalid_grant", Answer.MISCONFIGURED, "the account, its key, or the time here"),
    Row("40?", "invalid_client", Answer.MISCONFIGURED, "there is no such account"),
    Row("400", "*", Answer.MISCONFIGURED, "refused"),
    Row("40[1347]", "*", Answer.MISCONFIGURED, "the account, or the address for tokens"),
    Row("3??", "*", Answer.MISCONFIGURED, "somewhere else: redirects are not followed"),
    Row("429", "*", Answer.THROTTLED, "too many tokens asked for"),
    Row("*", "*", Answer.TRANSIENT, "away"),
)


def read(reply: Reply) -> tuple[str, str]:
    """The code of an error, and its words."""
    details = list(_details(reply.body))
    own = next((str(each["errorCode"]) for each in details if each.get("errorCode") and _is(each, FCM_ERROR)), "")
    status = reply.text("error", "status")
    words = " ".join([reply.text("error", "message"), *_violations(details)])
    if any(_is(each, BAD_REQUEST) and each.get("fieldViolations") for each in details):
        return f"field.{status or own}", words
    if own:
        return own, words
    return (f"rpc.{status}" if status else ""), words


def _details(body: object) -> Iterable[Mapping[str, object]]:
    error = body.get("error") if isinstance(body, Mapping) else None
    found = error.get("details") if isinstance(error, Mapping) else None
    return (each for each in found if isinstance(each, Mapping)) if isinstance(found, list) else ()


def _is(detail: Mapping[str, object], kind: str) -> bool:
    return str(detail.get("@type", "")).endswith(f"/{kind}")


def _violations(details: Iterable[Mapping[str, object]]) -> Iterable[str]:
    """What a quota's failure says of whose it is."""
    for each in details:
        found = each.get("violations") if _is(each, QUOTA_FAILURE) else None
        for violation in found if isinstance(found, list) else ():
            if isinstance(violation, Mapping):
                yield f"{violation.get('subject', '')} {violation.get('description', '')}"
