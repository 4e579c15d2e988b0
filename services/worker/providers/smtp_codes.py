"""What an SMTP server's reply means: one table, read from the top; the first row that fits decides.

By phase first, then enhanced status code (RFC 3463) over basic code, because servers say 550 for everything, and by
the first digit as the last resort. The server is our relay, not the recipient's: what it says before it has heard of a
recipient is never held against one.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from services.worker.providers import Answer, Outcome, safe_code


class Phase(StrEnum):
    """How far a conversation has come: what the last thing that was sent is."""

    CONNECT = "CONNECT"
    """Nothing, or EHLO."""
    TLS = "TLS"
    AUTH = "AUTH"
    MAIL = "MAIL"
    """The sender."""
    RCPT = "RCPT"
    """The recipient."""
    DATA = "DATA"
    """The command, or the message without its end."""
    DOT = "DOT"
    """The final dot: from here on the server may have the message."""


ANY = frozenset(Phase)
BEFORE_DOT = ANY - {Phase.DOT}
SESSION = frozenset({Phase.CONNECT, Phase.TLS, Phase.AUTH})
SENDER = frozenset({Phase.MAIL})
RECIPIENT = frozenset({Phase.RCPT})
CONTENT = frozenset({Phase.DATA, Phase.DOT})
DOT = frozenset({Phase.DOT})
ENVELOPE = SENDER | RECIPIENT
RECIPIENT_KNOWN = RECIPIENT | CONTENT
MESSAGE = ENVELOPE | CONTENT

# SMTP has no Retry-After; these stand for it. A rate is mended by a short rest; a quota of the day or a full mailbox
# is not; and a greylist wants minutes before it believes a retry (RFC 6647).
RATE_REST = timedelta(seconds=30)
GREYLIST_REST = timedelta(minutes=5)
MAILBOX_REST = timedelta(minutes=30)
QUOTA_REST = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Row:
    """`code` and `status` are patterns of fnmatch. The status of a reply without one is empty, which `*` fits too."""

    phases: frozenset[Phase]
    code: str
    status: str
    answer: Answer
    words: str = ""
    """What the text must contain: a regular expression, in any case. Only where nothing but the words tells."""
    rest: timedelta = timedelta()

    def fits(self, phase: Phase, code: str, status: str, text: str) -> bool:
        return (
            phase in self.phases
            and fnmatchcase(code, self.code)
            and fnmatchcase(status, self.status)
            and (not self.words or re.search(self.words, text, re.IGNORECASE) is not None)
        )


TABLE = (
    Row(DOT, "2*", "*", Answer.ACCEPTED),  # 250 by RFC 5321; by the first digit like every code (section 4.2.1)
    # Words. The first four are documented by Amazon SES, which sends no enhanced codes.
    Row(ANY, "454", "*", Answer.THROTTLED, words="throttling failure: daily message quota", rest=QUOTA_REST),
    Row(ANY, "454", "*", Answer.THROTTLED, words="throttling failure", rest=RATE_REST),
    Row(ANY, "421", "*", Answer.THROTTLED, words="too many|rate limit|throttl", rest=RATE_REST),
    Row(CONTENT, "554", "", Answer.MISCONFIGURED, words="address(es)? (is|are) not verified|access denied"),
    Row(
        MESSAGE,
        "4*",
        "4.7.*",
        Answer.THROTTLED,
        words="rate limit|sending rate|throttl|too many (concurrent )?(connections|sessions|messages)",
        rest=RATE_REST,
    ),
    Row(MESSAGE, "45[01]", "*", Answer.TRANSIENT, words="gr[ae]y-?list", rest=GREYLIST_REST),
    # Enhanced status codes.
    Row(MESSAGE, "53[0458]", "5.7.*", Answer.MISCONFIGURED),  # asks for AUTH or TLS (RFC 4954, RFC 3207)
    Row(SENDER, "5*", "5.1.*", Answer.MISCONFIGURED),  # there is no address yet but the sender's
    Row(RECIPIENT_KNOWN, "5*", "5.1.[78]", Answer.MISCONFIGURED),  # bad sender, said late
    Row(RECIPIENT_KNOWN, "5*", "5.1.[1236]", Answer.PERMANENT_ADDRESS),
    Row(RECIPIENT_KNOWN, "5*", "5.1.10", Answer.PERMANENT_ADDRESS),  # null MX (RFC 7505)
    Row(RECIPIENT, "553", "5.1.*", Answer.PERMANENT_ADDRESS),
    Row(RECIPIENT, "5*", "5.2.1", Answer.PERMANENT_ADDRESS),  # mailbox disabled
    Row(RECIPIENT_KNOWN, "5*", "5.2.2", Answer.TRANSIENT, rest=MAILBOX_REST),  # full: transient by RFC 3463, X.2.2
    Row(RECIPIENT_KNOWN, "4*", "4.2.2", Answer.TRANSIENT, rest=MAILBOX_REST),
    Row(MESSAGE, "5*", "5.2.3", Answer.PERMANENT_MESSAGE),  # too big for the mailbox
    Row(MESSAGE, "5*", "5.3.4", Answer.PERMANENT_MESSAGE),  # too big for the system
    Row(MESSAGE, "4*", "4.4.*", Answer.TRANSIENT),  # routing
    Row(MESSAGE, "5*", "5.4.[14]", Answer.PERMANENT_MESSAGE),
    Row(MESSAGE, "5*", "5.5.[124]", Answer.MISCONFIGURED),  # protocol: our bug
    Row(RECIPIENT, "5*", "5.5.3", Answer.TRANSIENT),  # too many recipients
    Row(MESSAGE, "5*", "5.6.*", Answer.PERMANENT_MESSAGE),  # media, and 5.6.7: a non-ASCII address it cannot take
    Row(MESSAGE, "45[01]", "4.7.*", Answer.TRANSIENT, rest=GREYLIST_REST),
    Row(MESSAGE, "5*", "5.7.*", Answer.PERMANENT_MESSAGE),  # policy, spam, DMARC: says nothing about the recipient
    # Basic codes (RFC 5321, section 4.2.3).
    Row(ANY, "421", "*", Answer.TRANSIENT),
    Row(ANY, "45[01]", "*", Answer.TRANSIENT),
    Row(ANY, "452", "*", Answer.TRANSIENT),
    Row(ANY, "454", "*", Answer.TRANSIENT),  # for a time: no TLS (RFC 3207), no authentication (RFC 4954)
    Row(ENVELOPE, "[45]55", "*", Answer.MISCONFIGURED),  # a parameter that it said it knows
    Row(ANY, "50[0-4]", "*", Answer.MISCONFIGURED),
    Row(SESSION | SENDER, "521", "*", Answer.MISCONFIGURED),  # our relay takes no mail at all (RFC 7504)
    Row(RECIPIENT, "521", "*", Answer.PERMANENT_ADDRESS),
    Row(RECIPIENT, "556", "*", Answer.PERMANENT_ADDRESS),  # the recipient's domain does not (RFC 7504)
    Row(ANY, "53[0458]", "*", Answer.MISCONFIGURED),
    Row(RECIPIENT, "551", "*", Answer.PERMANENT_ADDRESS),  # not local
    Row(RECIPIENT, "552", "*", Answer.TRANSIENT),  # too many recipients, in the words of RFC 821 (5321, 4.5.3.1.10)
    Row(SENDER | CONTENT, "552", "*", Answer.PERMANENT_MESSAGE),  # too big
    Row(frozenset({Phase.CONNECT}), "554", "*", Answer.MISCONFIGURED),  # no service for us
    Row(CONTENT, "554", "*", Answer.PERMANENT_MESSAGE),
    # First digit.
    Row(ANY, "4*", "*", Answer.TRANSIENT),
    Row(SESSION, "5*", "*", Answer.MISCONFIGURED),
    Row(MESSAGE, "5*", "*", Answer.PERMANENT_MESSAGE),
    # Not a reply to what was sent.
    Row(BEFORE_DOT, "*", "*", Answer.TRANSIENT),
    Row(DOT, "*", "*", Answer.UNKNOWN),
)

STATUS = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?=\s|$)")
CONTINUED = re.compile(r"\n([245]\.\d{1,3}\.\d{1,3}(?=\s|$))?")
QUEUE_IDS = (
    re.compile(r"\bqueued as ([A-Za-z0-9][A-Za-z0-9._-]{3,63})(?![\w.@-])", re.IGNORECASE),  # Postfix and its kin
    re.compile(r"^OK id=([A-Za-z0-9-]{8,64})\b"),  # Exim
    re.compile(r"^Ok ([0-9a-f][0-9a-f-]{19,63})$"),  # Amazon SES
)


def judge(phase: Phase, code: int, text: str) -> Outcome:
    """What a complete reply means. `text` is the reply without its codes' column, lines separated by LF."""
    basic, status = str(code), _status(code, text)
    text = CONTINUED.sub(" ", text)
    row = next(row for row in TABLE if row.fits(phase, basic, status, text))
    shown = safe_code(f"{basic}-{status}" if status else basic)
    if row.answer is Answer.ACCEPTED:
        return Outcome(row.answer, shown, provider_message_id=_queue_id(text.removeprefix(status).strip()))
    return Outcome(row.answer, shown, not_before=row.rest)


def judge_silence(phase: Phase, how: str) -> Outcome:
    """What it means that there was no reply. Before the final dot the server must not deliver (RFC 5321, 4.1.1.10)."""
    answer = Answer.UNKNOWN if phase is Phase.DOT else Answer.TRANSIENT
    return Outcome(answer, safe_code(f"{phase.lower()}-{how}"))


def _status(code: int, text: str) -> str:
    """The reply's enhanced status code, if it has one and it agrees with the code (RFC 2034, section 4)."""
    found = STATUS.match(text.lstrip())
    return found[0] if found and found[1] == str(code)[:1] else ""


def _queue_id(text: str) -> str | None:
    """The id under which the server says that it keeps the message, where its wording is known."""
    found = next((match for pattern in QUEUE_IDS if (match := pattern.search(text))), None)
    return found[1] if found else None
