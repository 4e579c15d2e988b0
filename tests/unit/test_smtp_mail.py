"""A notification as a mail: what a parser at the other end makes of it, whatever a caller put in."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.policy import default
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.worker.providers import Message
from services.worker.providers.mail import Mailbox, Malformed, compose, stuffed

KEY = UUID("01936b4e-7a10-7c3e-9d7f-0123456789ab")
SENDER = "Example <notify@example.com>"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ALLOWED = {
    "list-unsubscribe", "list-unsubscribe-post", "list-id", "in-reply-to", "references", "auto-submitted", "x-campaign"
}  # fmt: skip

# What PostgreSQL and protobuf carry: any text without surrogates and NUL.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=300)
lines = texts.map(lambda text: re.sub(r"[\r\n]", " ", text))


def _compose(content: Mapping[str, object], address: str = "anna@example.org", sender: str = SENDER) -> bytes:
    return compose(Message(KEY, 1, address, {"subject": "s", "text": "t", **content}), sender, NOW).body


def _parse(body: bytes) -> EmailMessage:
    message = message_from_bytes(body, policy=default)
    assert isinstance(message, EmailMessage)
    return message


def _part(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    assert isinstance(part, EmailMessage)
    return str(part.get_content()).replace("\r\n", "\n")


def _headers(body: bytes) -> list[bytes]:
    return body.partition(b"\r\n\r\n")[0].split(b"\r\n")


def _as_one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip()


def test_both_parts() -> None:
    message = _parse(_compose({"subject": "Grüße", "text": "plain\n", "html": "<b>rich</b>\n"}))
    assert message["Message-ID"] == f"<{KEY}@example.com>"
    assert message["From"] == SENDER
    assert message["To"] == "anna@example.org"
    assert message["Subject"] == "Grüße"
    assert message["Date"].datetime == NOW
    assert message["Auto-Submitted"] == "auto-generated"
    assert message.get_content_type() == "multipart/alternative"
    assert (_part(message, "plain"), _part(message, "html")) == ("plain\n", "<b>rich</b>\n")


def test_one_part() -> None:
    assert _parse(_compose({"text": "only"})).get_content_type() == "text/plain"
    assert _parse(_compose({"text": "", "html": "<p>only</p>"})).get_content_type() == "text/html"


def test_sender_and_reply_to() -> None:
    message = _parse(_compose({"sender": '"Acme, \\"Inc.\\"" <shop@acme.example>', "reply_to": "help@acme.example"}))
    assert message["From"].addresses[0].display_name == 'Acme, "Inc."'
    assert message["From"].addresses[0].addr_spec == "shop@acme.example"
    assert message["Reply-To"] == "help@acme.example"
    assert message["Message-ID"] == f"<{KEY}@acme.example>"


def test_envelope_is_bare() -> None:
    mail = compose(Message(KEY, 1, "anna@example.org", {"subject": "s", "text": "t"}), SENDER)
    assert (mail.sender, mail.recipient, mail.international) == ("notify@example.com", "anna@example.org", False)


def test_attempts_send_the_same_bytes() -> None:
    content = {"text": "é" * 50, "html": "<p>é</p>"}
    assert _compose(content) == _compose(content)


def test_long_url_stays_a_url() -> None:
    url = f"<https://example.com/unsubscribe?token={'a' * 400}>"
    message = _parse(_compose({"headers": {"List-Unsubscribe": f"{url}, <mailto:leave@example.com>"}}))
    assert message["List-Unsubscribe"].strip() == f"{url}, <mailto:leave@example.com>"
    assert f" {url},".encode() in _compose({"headers": {"list-unsubscribe": f"{url}, <mailto:x@example.com>"}})


def test_non_ascii_local_part_goes_out_as_it_is() -> None:
    mail = compose(Message(KEY, 1, "jürgen@example.org", {"subject": "s", "text": "t"}), SENDER)
    assert mail.international
    assert "To: jürgen@example.org\r\n".encode() in mail.body


def test_own_header_is_replaced() -> None:
    message = _parse(_compose({"headers": {"auto-submitted": "auto-replied"}}))
    assert message.get_all("Auto-Submitted") == ["auto-replied"]


@pytest.mark.parametrize("field", ["subject", "sender", "reply_to"])
@pytest.mark.parametrize("ending", ["\r\n", "\n", "\r"])
def test_line_break_in_a_header_is_refused(field: str, ending: str) -> None:
    with pytest.raises(Malformed, match=field):
        _compose({field: f"a{ending}Bcc: b@example.org"})


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"headers": {"X-A": "b\nBcc: c"}}, "headers"),
        ({"headers": {"X-A\r\nBcc": "c"}}, "headers"),
        ({"headers": {"X-A: b\r\nBcc": "c"}}, "headers"),
        ({"headers": {"Bcc": "c@example.org"}}, "headers"),
        ({"headers": {"DKIM-Signature": "v=1"}}, "headers"),
        ({"headers": {"X-": "nameless"}}, "headers"),
        ({"headers": {"X-A": 1}}, "headers"),
        ({"headers": ["X-A"]}, "headers"),
        ({"subject": 1}, "subject"),
        ({"sender": "nobody"}, "sender"),
        ({"sender": "A <a@example.org> B <b@example.org>"}, "sender"),
        ({"sender": "a@exämple.org"}, "sender"),
        ({"reply_to": "a@example.org, b@example.org"}, "reply_to"),
    ],
)
def test_malformed(content: Mapping[str, object], field: str) -> None:
    with pytest.raises(Malformed, match=f"^{field}: "):
        _compose(content)


@pytest.mark.parametrize(
    "address", ["", "anna", "@example.org", "a b@example.org", "<a@b.c>x", "a@b.c> SIZE=1", "a@b@c"]
)
def test_address_cannot_break_out_of_the_envelope(address: str) -> None:
    with pytest.raises(Malformed, match=r"^address: "):
        _compose({}, address)


def test_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        _compose({"text": "\ud800"})


@settings(deadline=None)
@given(lines)
@example("=?utf-8?q?not_an_encoded_word?=")
@example("x" * 998)
@example("two  spaces, and three   ")
@example("\U0001f600" * 200)
def test_any_subject(subject: str) -> None:
    body = _compose({"subject": subject})
    names = [line.partition(b":")[0] for line in _headers(body) if not line.startswith(b" ")]
    assert names[:6] == [b"Message-ID", b"Date", b"From", b"To", b"Subject", b"Auto-Submitted"]
    assert _parse(body)["Subject"] == _as_one_line(subject)


@settings(deadline=None)
@given(st.sampled_from(sorted(ALLOWED)), lines)
def test_any_header(name: str, value: str) -> None:
    body = _compose({"headers": {name: value}})
    fields = [line.partition(b":")[0] for line in _headers(body) if not line.startswith(b" ")]
    assert set(map(bytes.lower, fields)) <= {
        b"message-id", b"date", b"from", b"to", b"subject", b"auto-submitted", name.encode(),
        b"content-type", b"content-transfer-encoding", b"mime-version",
    }  # fmt: skip
    assert str(_parse(body)[name]) == _as_one_line(value)


@settings(deadline=None)
@given(st.dictionaries(texts, texts, max_size=3), texts, texts, texts)
def test_no_content_adds_a_header(headers: dict[str, str], subject: str, sender: str, reply_to: str) -> None:
    """Refused or harmless: there is no third way."""
    try:
        body = _compose({"headers": headers, "subject": subject, "sender": sender, "reply_to": reply_to})
    except ValueError:
        return
    assert {"bcc", "cc", "resent-to"}.isdisjoint(name.lower() for name in _parse(body))
    assert all(re.fullmatch(rb"[A-Za-z0-9-]+: ?.*| .+", line) for line in _headers(body))


@settings(deadline=None)
@given(lines, texts, texts)
@example("s", "a" * 5000, "<p>" + "é" * 5000)
@example("s", ".\r\n..\n.x\r.", "")
def test_lines_are_what_every_server_takes(subject: str, text: str, html: str) -> None:
    body = _compose({"subject": subject, "text": text, "html": html, "headers": {"X-Note": subject}})
    assert body.endswith(b"\r\n")
    assert body.isascii()
    lines = body.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= 998
    assert max(map(len, body.partition(b"\r\n\r\n")[2].split(b"\r\n"))) <= 78


@settings(deadline=None)
@given(texts, texts)
def test_text_arrives(text: str, html: str) -> None:
    message = _parse(_compose({"text": text or "t", "html": html or "h"}))
    for sent, kind in ((text or "t", "plain"), (html or "h", "html")):
        assert _part(message, kind).encode() == b"".join(line + b"\n" for line in sent.encode().splitlines())


@settings(deadline=None)
@given(st.lists(st.sampled_from([b".", b"..", b"", b"a", b".a", b"a.", b". "]), max_size=8))
def test_dots(lines: list[bytes]) -> None:
    body = b"".join(line + b"\r\n" for line in lines)
    sent = stuffed(body)
    assert b"\r\n.\r\n" not in b"\r\n" + sent
    assert re.sub(rb"(?m)^\.", b"", sent) == body  # what a server does


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a@b.c", "a@b.c"),
        ("  a@b.c ", "a@b.c"),
        ("<a@b.c>", "a@b.c"),
        ("A B <a@b.c>", "A B <a@b.c>"),
        ("A. B <a@b.c>", '"A. B" <a@b.c>'),
        ('"A. B" <a@b.c>', '"A. B" <a@b.c>'),
        ("Ä <a@b.c>", "=?utf-8?b?w4Q=?= <a@b.c>"),
        ("a@[192.0.2.1]", "a@[192.0.2.1]"),
    ],
)
def test_mailbox(text: str, shown: str) -> None:
    assert str(Mailbox.parse("sender", text)) == shown


@settings(deadline=None)
@given(lines)
def test_any_display_name(name: str) -> None:
    try:
        mailbox = Mailbox.parse("sender", f"{name} <a@example.org>")
    except Malformed:
        return
    (address,) = _parse(f"From: {mailbox}\r\n\r\n".encode())["From"].addresses
    assert address.addr_spec == "a@example.org"
    # Not the parser's own reading of the name, which loses blanks and, on Python 3.11, adds some.
    shown = str(mailbox).removesuffix(" <a@example.org>")
    shown = re.sub(r"\\(.)", r"\1", shown[1:-1]) if shown.startswith('"') else str(make_header(decode_header(shown)))
    assert shown == mailbox.name or not mailbox.name
