"""The mail provider against servers that misbehave: what is known of the mail, and that it went out once at most."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.worker.providers import Answer
from services.worker.providers.smtp import Tls
from tests.smtp_server import IMPATIENT, IMPATIENT_AFTER_DOT, Do, Replies, Start, deliver, starting
from tests.spans import told


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.mark.parametrize(
    ("replies", "answer", "code", "begun", "bodies"),
    [
        # Before the final dot nothing can have been delivered.
        ({"GREETING": ("421 too busy", Do.CLOSE)}, Answer.TRANSIENT, "421", False, 0),
        ({"GREETING": "554 no service"}, Answer.MISCONFIGURED, "554", False, 0),
        ({"GREETING": Do.CLOSE}, Answer.TRANSIENT, "connect-closed", False, 0),
        ({"GREETING": Do.RESET}, Answer.TRANSIENT, "connect-closed", False, 0),
        ({"GREETING": Do.HANG}, Answer.TRANSIENT, "connect-timeout", False, 0),
        ({"GREETING": (b"220-slow\r\n220-er", Do.HANG)}, Answer.TRANSIENT, "connect-timeout", False, 0),
        ({"GREETING": "HTTP/1.1 400 Bad Request"}, Answer.TRANSIENT, "connect-malformed", False, 0),
        ({"EHLO": "502 what"}, Answer.MISCONFIGURED, "502", False, 0),
        ({"EHLO": Do.HANG}, Answer.TRANSIENT, "connect-timeout", False, 0),
        ({"MAIL": "550 5.7.1 not you"}, Answer.PERMANENT_MESSAGE, "550-5.7.1", False, 0),
        ({"MAIL": "452 4.3.1 no room"}, Answer.TRANSIENT, "452-4.3.1", False, 0),
        ({"MAIL": Do.CLOSE}, Answer.TRANSIENT, "mail-closed", False, 0),
        ({"RCPT": "550 5.1.1 nobody"}, Answer.PERMANENT_ADDRESS, "550-5.1.1", False, 0),
        ({"RCPT": (b"250-half", Do.HANG)}, Answer.TRANSIENT, "rcpt-timeout", False, 0),
        ({"RCPT": Do.RESET}, Answer.TRANSIENT, "rcpt-closed", False, 0),
        ({"RCPT": "354 confused"}, Answer.TRANSIENT, "354", False, 0),
        ({"RCPT": "251 will forward"}, Answer.ACCEPTED, "250-2.0.0", True, 1),
        ({"DATA": "451 4.3.0 not now"}, Answer.TRANSIENT, "451-4.3.0", False, 0),
        ({"DATA": "250 confused"}, Answer.TRANSIENT, "250", False, 0),
        ({"DATA": Do.HANG}, Answer.TRANSIENT, "data-timeout", False, 0),
        ({"DATA": ("354 go", Do.CLOSE)}, Answer.TRANSIENT, "data-closed", False, 0),
        ({"DATA": ("354 go", Do.RESET)}, Answer.TRANSIENT, "data-closed", False, 0),
        # After it, only an answer tells.
        ({"DOT": "250 ok"}, Answer.ACCEPTED, "250", True, 1),
        ({"DOT": "250-first\r\n250 last"}, Answer.ACCEPTED, "250", True, 1),
        ({"DOT": ("250 ok", Do.CLOSE)}, Answer.ACCEPTED, "250", True, 1),
        ({"DOT": ("250 ok", Do.RESET)}, Answer.ACCEPTED, "250", True, 1),
        ({"DOT": ("250 ok", "421 and bye", Do.CLOSE)}, Answer.ACCEPTED, "250", True, 1),
        ({"DOT": "554 5.7.1 spam"}, Answer.PERMANENT_MESSAGE, "554-5.7.1", True, 1),
        ({"DOT": "550 5.1.1 nobody"}, Answer.PERMANENT_ADDRESS, "550-5.1.1", True, 1),
        ({"DOT": "451 4.3.0 not now"}, Answer.TRANSIENT, "451-4.3.0", True, 1),
        ({"DOT": ("421 4.3.2 closing", Do.CLOSE)}, Answer.TRANSIENT, "421-4.3.2", True, 1),
        ({"DOT": "354 confused"}, Answer.UNKNOWN, "354", True, 1),
        ({"DOT": Do.CLOSE}, Answer.UNKNOWN, "dot-closed", True, 1),
        ({"DOT": Do.RESET}, Answer.UNKNOWN, "dot-closed", True, 1),
        ({"DOT": Do.HANG}, Answer.UNKNOWN, "dot-timeout", True, 1),
        ({"DOT": (b"250-kept, and then", Do.HANG)}, Answer.UNKNOWN, "dot-timeout", True, 1),
        ({"DOT": (b"250", Do.CLOSE)}, Answer.UNKNOWN, "dot-closed", True, 1),
        ({"DOT": "yes"}, Answer.UNKNOWN, "dot-malformed", True, 1),
        ({"DOT": (b"2" * 40_000, Do.HANG)}, Answer.UNKNOWN, "dot-malformed", True, 1),
    ],
)
async def test_fault(start: Start, replies: Replies, answer: Answer, code: str, begun: bool, bodies: int) -> None:
    settings = IMPATIENT_AFTER_DOT if code == "dot-timeout" else IMPATIENT if "timeout" in code else {}
    smtp, server = await start(replies, **settings)
    outcome, handed_over = await deliver(smtp)
    assert (outcome.answer, outcome.code, handed_over) == (answer, code, begun)
    assert len(server.bodies) == bodies
    assert server.verbs["DATA"] <= 1
    assert server.opened == 1


@pytest.mark.parametrize("verb", ["GREETING", "MAIL", "RCPT", "DATA", "DOT"])
async def test_no_word_of_a_reply_is_told(start: Start, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    with told() as found, capture_logs() as lines:
        smtp, _ = await start({verb: "554 5.9.9 mk-words anna@example.org"})
        outcome, _ = await deliver(smtp)
    assert outcome.code == "554-5.9.9"
    said = [caplog.text, *map(repr, lines), *found.lines()]
    assert "554" in said[-1]
    assert not [line for line in said if "mk-" in line or "anna" in line]


@pytest.mark.parametrize(
    ("extensions", "address", "expected"),
    [
        ([], "anna@example.org", "MAIL FROM:<notify@example.com>"),
        (["SIZE 1000000"], "anna@example.org", "MAIL FROM:<notify@example.com> SIZE="),
        (["SIZE"], "anna@example.org", "MAIL FROM:<notify@example.com> SIZE="),
        (["SIZE 0"], "anna@example.org", "MAIL FROM:<notify@example.com> SIZE="),
        (["SMTPUTF8", "8BITMIME"], "anna@example.org", "MAIL FROM:<notify@example.com>"),
        (["SMTPUTF8", "8BITMIME"], "jürgen@example.org", "MAIL FROM:<notify@example.com> SMTPUTF8 BODY=8BITMIME"),
    ],
)
async def test_parameters(start: Start, extensions: Sequence[str], address: str, expected: str) -> None:
    greeting = "\r\n".join(["250-test", *(f"250-{extension}" for extension in extensions), "250 HELP"])
    smtp, server = await start({"EHLO": greeting})
    assert (await deliver(smtp, address))[0].answer is Answer.ACCEPTED
    command = next(command for command in server.commands if command.startswith("MAIL"))
    size = len(server.bodies[0].removesuffix(b".\r\n"))
    assert command == (f"{expected}{size}" if expected.endswith("=") else expected)


@pytest.mark.parametrize(
    ("extension", "address", "code"),
    [("SIZE 100", "anna@example.org", "size-exceeded"), ("8BITMIME", "jürgen@example.org", "smtputf8-missing")],
)
async def test_what_the_server_will_not_take(start: Start, extension: str, address: str, code: str) -> None:
    smtp, server = await start({"EHLO": f"250-test\r\n250 {extension}"})
    outcome, begun = await deliver(smtp, address)
    assert (outcome.answer, outcome.code, begun) == (Answer.PERMANENT_MESSAGE, code, False)
    assert server.verbs["MAIL"] == 0


async def test_starttls_missing(start: Start) -> None:
    smtp, server = await start(tls=Tls.STARTTLS)
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.MISCONFIGURED, "starttls-missing", False)
    assert server.verbs["MAIL"] == 0


@pytest.mark.parametrize("settings", [{"tls": Tls.STARTTLS}, {"username": "user", "password": "secret"}])
async def test_closed_before_it_could_be_asked(start: Start, settings: dict[str, Any]) -> None:
    """What the server offered went with the connection; that is no reason to call it missing."""
    smtp, server = await start({"EHLO": ("250-test\r\n250-STARTTLS\r\n250 AUTH PLAIN", Do.CLOSE)}, **settings)
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, begun) == (Answer.TRANSIENT, False)
    assert server.opened == 1


@pytest.mark.parametrize(
    ("replies", "answer", "code"),
    [
        ({}, Answer.MISCONFIGURED, "auth-missing"),
        ({"EHLO": "250-test\r\n250 AUTH CRAM-MD5"}, Answer.MISCONFIGURED, "auth-missing"),
        ({"EHLO": "250-test\r\n250 AUTH PLAIN", "AUTH": "535 5.7.8 no"}, Answer.MISCONFIGURED, "535-5.7.8"),
        ({"EHLO": "250-test\r\n250 AUTH PLAIN LOGIN", "AUTH": "535 5.7.8 no"}, Answer.MISCONFIGURED, "535-5.7.8"),
        ({"EHLO": "250-test\r\n250 AUTH PLAIN", "AUTH": "454 4.7.0 later"}, Answer.TRANSIENT, "454-4.7.0"),
        ({"EHLO": "250-test\r\n250 AUTH PLAIN", "AUTH": Do.CLOSE}, Answer.TRANSIENT, "auth-closed"),
        ({"EHLO": "250-test\r\n250 AUTH PLAIN", "AUTH": "235 2.7.0 welcome"}, Answer.ACCEPTED, "250-2.0.0"),
    ],
)
async def test_authentication(start: Start, replies: Replies, answer: Answer, code: str) -> None:
    smtp, server = await start(replies, username="user", password="secret")
    outcome, _ = await deliver(smtp)
    assert (outcome.answer, outcome.code) == (answer, code)
    assert server.verbs["AUTH"] <= 1  # one mechanism, one try: servers count what fails
