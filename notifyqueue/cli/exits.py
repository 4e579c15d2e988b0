"""What an error means for whoever ran the command: an exit code by kind, and what to do next."""

from collections.abc import Mapping

from grpc import StatusCode

from notifyqueue import errors
from notifyqueue.errors import NotifyQueueError

OK = 0
USAGE = 2
ENDED: Mapping[str, int] = {"FAILED": 10, "DEAD_LETTERED": 11, "CANCELLED": 12, "EXPIRED": 13, "SUPPRESSED": 14}
INVALID = 64
LINES_REFUSED = 65
NOT_FOUND = 66
UNAVAILABLE = 69
FAULT = 70
CONFLICT = 73
TRY_AGAIN = 75
PROTOCOL = 76
DENIED = 77
INTERRUPTED = 130

# Numbers as in sysexits.h where it has one. docs/cli.md shows this table, and a test compares them.
MEANINGS: Mapping[int, str] = {
    OK: "done; `watch`: it was SENT",
    USAGE: "the command was not understood",
    **{code: f"`watch`: it ended as {status}" for status, code in ENDED.items()},
    INVALID: "the request is invalid",
    LINES_REFUSED: "lines of a batch were malformed or refused",
    NOT_FOUND: "no such notification, template, subscriber or suppression, or it is another tenant's",
    UNAVAILABLE: "nobody answers",
    FAULT: "a fault of the server or of this program",
    CONFLICT: "something stands against it: its status, a key that is used, an opt-out, a quota",
    TRY_AGAIN: "not now, or not known: the same again later is safe; a `redrive` by a filter then takes the next ones",
    PROTOCOL: "the server does not know this call",
    DENIED: "the API key is missing, wrong, or has no such right",
    INTERRUPTED: "interrupted",
}

BY_CODE: Mapping[StatusCode, int] = {
    StatusCode.OK: OK,
    StatusCode.INVALID_ARGUMENT: INVALID,
    StatusCode.OUT_OF_RANGE: INVALID,
    StatusCode.NOT_FOUND: NOT_FOUND,
    StatusCode.UNAVAILABLE: UNAVAILABLE,
    StatusCode.UNKNOWN: FAULT,
    StatusCode.INTERNAL: FAULT,
    StatusCode.DATA_LOSS: FAULT,
    StatusCode.ALREADY_EXISTS: CONFLICT,
    StatusCode.FAILED_PRECONDITION: CONFLICT,
    StatusCode.ABORTED: TRY_AGAIN,
    StatusCode.CANCELLED: TRY_AGAIN,
    StatusCode.DEADLINE_EXCEEDED: TRY_AGAIN,
    StatusCode.RESOURCE_EXHAUSTED: TRY_AGAIN,
    StatusCode.UNIMPLEMENTED: PROTOCOL,
    StatusCode.UNAUTHENTICATED: DENIED,
    StatusCode.PERMISSION_DENIED: DENIED,
}

AGAIN = "run the same command again: what was stored is not stored twice"

ADVICE: Mapping[type[NotifyQueueError], str] = {
    errors.RequestInvalid: "correct what is named, and send it again",
    errors.PageTokenInvalid: "list again from the beginning",
    errors.TemplateRenderFailed: "give the variables that are named",
    errors.ResourceNotFound: "check the key, id or name, and that the API key is of the same tenant",
    errors.IdempotencyKeyReused: "look at what has the key with `notifyqueue get`, or choose another key",
    errors.StatusConflict: "see what became of it with `notifyqueue get --timeline`",
    errors.NoLongerSendable: "send it anew under another key, if it is still wanted",
    errors.RecipientOptedOut: "do not send to them; another category may be allowed",
    errors.AddressSuppressed: "use another address, or have an operator lift the suppression",
    errors.AddressMissing: "give the subscriber an address on this channel, or name one with --to",
    errors.TenantLimitExceeded: "send more slowly, or run it again later",
    errors.ServerOverloaded: "run it again in a moment",
    errors.QuotaExceeded: "remove what is not needed, or ask for a higher quota",
    errors.Unavailable: f"check the address and that the server runs, then {AGAIN}",
    errors.DatabaseUnavailable: f"wait for the server's database, then {AGAIN}",
    errors.ServerDraining: AGAIN,
    errors.CredentialInvalid: "put a valid API key into NOTIFYQUEUE_API_KEY or --api-key-file",
    errors.RoleMissing: "ask for another key: OPERATOR lists, counts and redrives, PLATFORM steers lanes and processes",
    errors.DeadlineExceeded: f"give it longer with --timeout, and {AGAIN}",
    errors.MethodUnknown: "the server is older than this command: update it",
    errors.Internal: "tell those who run the server, with the request id",
}
UNFORESEEN = "tell those who run the server"


def exit_code(error: NotifyQueueError) -> int:
    # Of all that is exhausted, a quota alone does not recover by itself.
    return CONFLICT if isinstance(error, errors.QuotaExceeded) else BY_CODE[error.code]


def advice(error: NotifyQueueError) -> str:
    """What to do next; notes that were added to the error are part of it."""
    kind = errors.MethodUnknown if error.code is StatusCode.UNIMPLEMENTED else type(error)
    return "; ".join([ADVICE.get(kind, UNFORESEEN), *getattr(error, "__notes__", ())])
