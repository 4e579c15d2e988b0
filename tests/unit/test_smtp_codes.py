"""What each reply of an SMTP server means; each row of the table decides at least one of these."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.worker.providers import UNSAFE, Answer
from services.worker.providers.smtp_codes import (
    CONTINUED,
    GREYLIST_REST,
    MAILBOX_REST,
    QUOTA_REST,
    RATE_REST,
    TABLE,
    Phase,
    Row,
    _status,
    judge,
    judge_silence,
)

CONNECT, TLS, AUTH, MAIL, RCPT, DATA, DOT = Phase
ACCEPTED, MESSAGE, ADDRESS, MISCONFIGURED, THROTTLED, TRANSIENT, UNKNOWN = Answer
NONE = timedelta()
SES_ID = "0100018c5e1f7a3b-d0c6a1f2-1b2c-4f66-9f0e-3d1c2b4a5e6f-000000"

Example = tuple[tuple[Phase, ...], int, str, Answer, timedelta]

EXAMPLES: tuple[Example, ...] = (
    # After the final dot.
    ((DOT,), 250, "2.0.0 Ok: queued as 4XyZ1234", ACCEPTED, NONE),
    ((DOT,), 250, "", ACCEPTED, NONE),
    ((DOT,), 252, "who knows, but it is a yes", ACCEPTED, NONE),
    ((DOT,), 354, "go on", UNKNOWN, NONE),
    ((DOT,), 999, "", UNKNOWN, NONE),
    # 421.
    (tuple(Phase), 421, "4.3.2 Service shutting down", TRANSIENT, NONE),
    (tuple(Phase), 421, "closing", TRANSIENT, NONE),
    (tuple(Phase), 421, "Too many concurrent SMTP connections", THROTTLED, RATE_REST),
    ((RCPT,), 421, "4.7.28 An unusual rate of mail; it has been\n4.7.28 rate limited", THROTTLED, RATE_REST),
    # Temporary.
    ((MAIL, RCPT, DATA, DOT), 450, "4.2.1 mailbox busy", TRANSIENT, NONE),
    ((MAIL, RCPT, DATA, DOT), 451, "Local error in processing", TRANSIENT, NONE),
    ((RCPT, DATA, DOT), 450, "4.7.1 Try again later", TRANSIENT, GREYLIST_REST),
    ((RCPT, DOT), 451, "4.7.1 Greylisted, come back in five minutes", TRANSIENT, GREYLIST_REST),
    ((RCPT, DOT), 450, "Recipient address rejected: Greylisting in effect", TRANSIENT, GREYLIST_REST),
    ((RCPT, DOT), 451, "4.7.0 Our sending rate limit for you is reached", THROTTLED, RATE_REST),
    ((MAIL, RCPT), 450, "4.7.1 Error: too many connections from you", THROTTLED, RATE_REST),
    ((RCPT,), 450, "4.2.1 The user is receiving mail at a rate that", TRANSIENT, NONE),
    ((RCPT, DATA), 452, "4.5.3 Too many recipients", TRANSIENT, NONE),
    ((RCPT, DATA, DOT), 452, "Insufficient system storage", TRANSIENT, NONE),
    ((RCPT, DOT), 452, "4.2.2 Over quota", TRANSIENT, MAILBOX_REST),
    ((RCPT, DOT), 451, "4.4.3 DNS trouble", TRANSIENT, NONE),
    ((RCPT,), 499, "not a code that anybody knows", TRANSIENT, NONE),
    ((CONNECT, AUTH), 471, "", TRANSIENT, NONE),
    # 454.
    ((AUTH, MAIL, DOT), 454, "Throttling failure: Maximum sending rate exceeded", THROTTLED, RATE_REST),
    ((AUTH, MAIL, DOT), 454, "Throttling failure: Daily message quota exceeded", THROTTLED, QUOTA_REST),
    ((AUTH,), 454, "Temporary authentication failure", TRANSIENT, NONE),
    ((TLS,), 454, "4.7.0 TLS not available", TRANSIENT, NONE),
    # Ours to mend.
    ((MAIL, RCPT), 455, "cannot accommodate", MISCONFIGURED, NONE),
    ((MAIL, RCPT), 555, "5.5.4 parameters not recognized", MISCONFIGURED, NONE),
    ((MAIL, RCPT), 555, "parameters not recognized", MISCONFIGURED, NONE),
    (tuple(Phase), 500, "command unrecognized", MISCONFIGURED, NONE),
    (tuple(Phase), 501, "syntax", MISCONFIGURED, NONE),
    (tuple(Phase), 502, "5.5.1 not implemented", MISCONFIGURED, NONE),
    (tuple(Phase), 503, "5.5.1 bad sequence", MISCONFIGURED, NONE),
    (tuple(Phase), 504, "parameter not implemented", MISCONFIGURED, NONE),
    ((DATA,), 554, "5.5.1 no valid recipients", MISCONFIGURED, NONE),
    ((AUTH, MAIL, RCPT), 530, "5.7.0 Authentication required", MISCONFIGURED, NONE),
    ((MAIL,), 530, "Must issue a STARTTLS command first", MISCONFIGURED, NONE),
    ((AUTH,), 534, "5.7.9 mechanism too weak", MISCONFIGURED, NONE),
    ((AUTH,), 535, "5.7.8 credentials invalid", MISCONFIGURED, NONE),
    ((AUTH,), 538, "5.7.11 encryption required", MISCONFIGURED, NONE),
    ((AUTH, TLS, CONNECT), 550, "go away", MISCONFIGURED, NONE),
    ((CONNECT, MAIL), 521, "does not accept mail", MISCONFIGURED, NONE),
    ((CONNECT,), 554, "no SMTP service here", MISCONFIGURED, NONE),
    ((DATA, DOT), 554, "Message rejected: Email address is not verified.", MISCONFIGURED, NONE),
    ((DOT,), 554, "Access denied: not authorized", MISCONFIGURED, NONE),
    ((MAIL,), 553, "5.1.8 sender domain unknown", MISCONFIGURED, NONE),
    ((MAIL,), 550, "5.1.1 no such user", MISCONFIGURED, NONE),
    ((RCPT, DOT), 550, "5.1.8 sender domain unknown", MISCONFIGURED, NONE),
    ((RCPT,), 501, "5.1.7 bad sender address", MISCONFIGURED, NONE),
    # The address.
    ((RCPT,), 521, "5.3.2 does not accept mail", ADDRESS, NONE),
    ((RCPT,), 556, "domain does not accept mail", ADDRESS, NONE),
    ((RCPT, DOT), 556, "5.1.10 null MX", ADDRESS, NONE),
    ((RCPT, DATA, DOT), 550, "5.1.1 no such user", ADDRESS, NONE),
    ((RCPT, DOT), 550, "5.1.2 no such domain", ADDRESS, NONE),
    ((RCPT, DOT), 501, "5.1.3 bad syntax", ADDRESS, NONE),
    ((RCPT, DOT), 550, "5.1.6 moved", ADDRESS, NONE),
    ((RCPT,), 551, "not local", ADDRESS, NONE),
    ((RCPT,), 553, "5.1.4 ambiguous", ADDRESS, NONE),
    ((RCPT,), 550, "5.2.1 mailbox disabled", ADDRESS, NONE),
    ((DOT,), 550, "5.2.1 at a rate that prevents additional messages", MESSAGE, NONE),
    # Full, and too many.
    ((RCPT, DATA, DOT), 552, "5.2.2 mailbox full", TRANSIENT, MAILBOX_REST),
    ((RCPT,), 550, "5.2.2 over quota", TRANSIENT, MAILBOX_REST),
    ((RCPT,), 552, "too many recipients", TRANSIENT, NONE),
    ((RCPT,), 552, "5.5.3 too many recipients", TRANSIENT, NONE),
    # The message.
    ((MAIL, DATA, DOT), 552, "5.3.4 too big for the system", MESSAGE, NONE),
    ((RCPT, DOT), 552, "5.2.3 too big for the mailbox", MESSAGE, NONE),
    ((MAIL, DATA, DOT), 552, "Message is too long", MESSAGE, NONE),
    ((MAIL, RCPT, DATA, DOT), 550, "5.7.1 not authorised", MESSAGE, NONE),
    ((RCPT, DOT), 554, "5.7.1 Client host rejected: Access denied", MESSAGE, NONE),
    ((DOT,), 550, "5.7.26 DMARC", MESSAGE, NONE),
    ((RCPT,), 550, "5.4.1 access denied", MESSAGE, NONE),
    ((DOT,), 554, "5.4.4 unable to route", MESSAGE, NONE),
    ((RCPT,), 553, "5.6.7 non-ASCII address", MESSAGE, NONE),
    ((DATA, DOT), 554, "transaction failed", MESSAGE, NONE),
    ((RCPT, DATA, DOT), 550, "mailbox unavailable, or policy: nobody knows", MESSAGE, NONE),
    ((RCPT,), 553, "not in my list of allowed hosts", MESSAGE, NONE),
    ((RCPT,), 550, "5.1.0 other", MESSAGE, NONE),
    # An enhanced code that contradicts its reply is none.
    ((RCPT,), 550, "4.2.2 mailbox full", MESSAGE, NONE),
    # Not an answer to what was asked.
    ((CONNECT, TLS, AUTH, MAIL, RCPT, DATA), 250, "ok", TRANSIENT, NONE),
    ((MAIL, RCPT), 354, "go on", TRANSIENT, NONE),
)

EACH = [(phase, code, text, answer, rest) for phases, code, text, answer, rest in EXAMPLES for phase in phases]


@pytest.mark.parametrize(("phase", "code", "text", "answer", "rest"), EACH)
def test_meaning(phase: Phase, code: int, text: str, answer: Answer, rest: timedelta) -> None:
    outcome = judge(phase, code, text)
    assert (outcome.answer, outcome.not_before) == (answer, rest)


def _deciding(phase: Phase, code: int, text: str) -> Row:
    status = _status(code, text)
    return next(row for row in TABLE if row.fits(phase, str(code), status, CONTINUED.sub(" ", text)))


def test_every_row_decides_something() -> None:
    decisive = {_deciding(phase, code, text) for phase, code, text, *_ in EACH}
    assert [row for row in TABLE if row not in decisive] == []


def test_words_before_enhanced_before_basic_codes() -> None:
    def rank(row: Row) -> int:
        if row.words:
            return 0
        return 1 if row.status != "*" else 2

    ranks = [rank(row) for row in TABLE[1:]]  # the first is the yes
    assert ranks == sorted(ranks)


@settings(deadline=None)
@given(st.sampled_from(Phase), st.integers(100, 999), st.text(max_size=60))
def test_only_a_yes_after_the_dot_is_accepted(phase: Phase, code: int, text: str) -> None:
    outcome = judge(phase, code, text)
    assert (outcome.answer is ACCEPTED) == (phase is DOT and code // 100 == 2)
    if outcome.answer is UNKNOWN:
        assert phase is DOT
        assert code // 100 not in (2, 4, 5)
    if outcome.answer is ADDRESS:
        assert phase in (RCPT, DATA, DOT)
    assert outcome.code is not None
    assert not UNSAFE.search(outcome.code)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("how", ["timeout", "closed"])
def test_silence(phase: Phase, how: str) -> None:
    outcome = judge_silence(phase, how)
    assert outcome.answer is (UNKNOWN if phase is DOT else TRANSIENT)
    assert outcome.code == f"{phase.lower()}-{how}"


@pytest.mark.parametrize(
    ("code", "text", "shown"),
    [
        (550, "5.1.1 <anna@example.org>: no such user", "550-5.1.1"),
        (550, "5.1.1", "550-5.1.1"),
        (550, "no such user", "550"),
        (550, "5.1.1no space, no status", "550"),
        (550, "4.1.1 another class", "550"),
        (421, "4.7.0 [192.0.2.1] slow\n4.7.0 down", "421-4.7.0"),
    ],
)
def test_code_carries_no_words(code: int, text: str, shown: str) -> None:
    assert judge(RCPT, code, text).code == shown


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [
        ("2.0.0 Ok: queued as 4XyZ1234", "4XyZ1234"),
        ("2.0.0 Ok: queued as anna@example.org", None),
        ("OK id=1rABCd-0000000ABC-1a2B", "1rABCd-0000000ABC-1a2B"),
        (f"Ok {SES_ID}", SES_ID),
        ("2.6.0 <key@example.org> Queued mail for delivery", None),
        ("", None),
    ],
)
def test_queue_id(text: str, queue_id: str | None) -> None:
    assert judge(DOT, 250, text).provider_message_id == queue_id
