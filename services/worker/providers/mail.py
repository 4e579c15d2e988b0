"""A notification as a mail: headers that cannot be broken out of, and lines that every server takes.

It is written out here rather than by email.message, whose folding turns a URL or message id that is longer than a line
into an encoded word, which no mail client decodes in List-Unsubscribe or References, and which keeps the event loop
busy for milliseconds with each mail. Bodies are in 7-bit encodings, so nothing has to be agreed with a server.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime
from uuid import UUID

from services.worker.providers import Message

# RFC 2045, sections 6.7 and 6.8, and RFC 2047, section 2.
MAX_ENCODED_LINE = 76

ALLOWED = frozenset(
    {"list-unsubscribe", "list-unsubscribe-post", "list-id", "in-reply-to", "references", "auto-submitted"}
)
NAME = re.compile(r"[A-Za-z0-9-]{1,76}")
CUSTOM = re.compile(r"x-.", re.IGNORECASE)
# Mailboxes without quotes, comments and routes, which addresses of people do not have.
ADDRESS = re.compile(r"[^\s\x00-\x1f\x7f<>()\[\]\\,;:@\"]{1,64}@[A-Za-z0-9._:\[\]-]{1,255}")
NAMED = re.compile(r'(?P<name>"(?:[^"\\]|\\.)*"|[^"<>]*?)\s*<(?P<address>[^<>]+)>', re.DOTALL)
# Printable ASCII in words that fit on a line, with single spaces between them: what can be folded and unfolded without
# a loss. RFC 5322, section 2.1.1: a line should have at most 78 characters and must not have more than 998.
PLAIN = re.compile(r"[!-~]{1,997}( [!-~]{1,997})*")
FOLD_AT = 78
ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]+")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# What needs no encoding at all.
SIMPLE = re.compile(rb"([\t -~]{0,76}\r\n)*")


class Malformed(ValueError):
    """This content cannot be made into a mail; the message names the field and no value."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail and its envelope. `body` ends with CRLF and is not dot-stuffed."""

    sender: str
    recipient: str
    body: bytes

    @property
    def international(self) -> bool:
        """Whether it needs a server with SMTPUTF8 (RFC 6531): the local part of an address is not ASCII."""
        return not self.body.isascii()


@dataclass(frozen=True, slots=True)
class Mailbox:
    name: str
    address: str

    @classmethod
    def parse(cls, field: str, text: str) -> "Mailbox":
        """`address` or `Name <address>`. Raises Malformed."""
        named = NAMED.fullmatch(text.strip())
        name, address = (named["name"], named["address"]) if named else ("", text.strip())
        found = ADDRESS.fullmatch(address.strip())
        if not found:
            raise Malformed(f"{field}: not an address with a domain in ASCII")
        return cls(_unquoted(one_line(field, name)), found[0])

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    def __str__(self) -> str:
        """As a header has it."""
        if not self.name:
            return self.address
        if not _is_plain(self.name):
            return f"{_encoded('From', self.name)} <{self.address}>"
        name = self.name if ATOMS.fullmatch(self.name) else '"' + re.sub(r'(["\\])', r"\\\1", self.name) + '"'
        return f"{name} <{self.address}>"


def compose(message: Message, default_sender: str, now: datetime | None = None) -> Mail:
    """The same delivery key gives the same Message-ID. Raises Malformed, or a ValueError of Python's codecs."""
    content = message.content
    sender = Mailbox.parse("sender", text_of(content, "sender") or default_sender)
    recipient = Mailbox.parse("address", message.address)
    fields = {
        "Message-ID": f"<{message.delivery_key}@{sender.domain}>",
        "Date": format_datetime(now or datetime.now(UTC)),
        "From": str(sender),
        "To": str(recipient),
        "Subject": _value("Subject", one_line("subject", text_of(content, "subject"))),
        "Auto-Submitted": "auto-generated",  # RFC 3834: keeps out-of-office replies away
    }
    if reply_to := text_of(content, "reply_to"):
        fields["Reply-To"] = str(Mailbox.parse("reply_to", reply_to))
    custom = custom_headers(content.get("headers") or {})
    fields |= {name: _value(name, value) for name, value in custom.items()}
    header = "".join(_folded(f"{name}: {value}") for name, value in fields.items()).encode()
    body = _body(text_of(content, "text"), text_of(content, "html"), message.delivery_key)
    return Mail(sender.address, recipient.address, header + b"MIME-Version: 1.0\r\n" + body)


def stuffed(body: bytes) -> bytes:
    """Lines that begin with a dot get another, lest one be taken for the end (RFC 5321, section 4.5.2)."""
    return re.sub(rb"(?m)^\.", b"..", body)


def custom_headers(headers: object) -> dict[str, str]:
    """What a caller may set of a mail's headers, each on one line. Raises Malformed."""
    if not isinstance(headers, Mapping):
        raise Malformed("headers: not a map")
    fields: dict[str, str] = {}
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str) and NAME.fullmatch(name)):
            raise Malformed("headers: not a name and a text")
        if name.lower() not in ALLOWED and not CUSTOM.match(name):
            raise Malformed("headers: a name that is not allowed")
        # One spelling, so that a header given twice in different letters goes out once, and ours is replaced.
        fields[name.title()] = one_line("headers", value)
    return fields


def text_of(content: Mapping[str, object], field: str) -> str:
    """Empty where the field is missing. Raises Malformed."""
    value = content.get(field)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{field}: not a text")
    return value or ""


def one_line(field: str, value: str) -> str:
    """A header's value: CR and LF are refused, since nobody sends them by mistake; other controls become spaces."""
    if "\r" in value or "\n" in value:
        raise Malformed(f"{field}: more than one line")
    return CONTROLS.sub(" ", value).strip()


def _value(name: str, value: str) -> str:
    return value if not value or _is_plain(value) else _encoded(name, value)


def _is_plain(value: str) -> bool:
    # What looks like an encoded word is encoded, or it would arrive as what it stands for.
    return PLAIN.fullmatch(value) is not None and "=?" not in value


def _encoded(name: str, value: str) -> str:
    """The value in encoded words (RFC 2047), with single spaces between them."""
    return Header(value, "utf-8", maxlinelen=MAX_ENCODED_LINE, header_name=name).encode(linesep="")


def _folded(line: str) -> str:
    """Broken before words, never inside one."""
    lines = [""]
    for word in line.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > FOLD_AT:
            lines.append(f" {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "".join(f"{part}\r\n" for part in lines)


def _body(text: str, html: str, key: UUID) -> bytes:
    if not (text and html):
        return _part("html", html) if html else _part("plain", text)
    boundary = f"=_{key.hex}"  # not left to chance, so that every attempt sends the same bytes
    header = f'Content-Type: multipart/alternative; boundary="{boundary}"\r\n'.encode()
    between = f"\r\n--{boundary}\r\n".encode()
    return header + between + _part("plain", text) + between + _part("html", html) + f"\r\n--{boundary}--\r\n".encode()


def _part(kind: str, text: str) -> bytes:
    """Its headers, an empty line, and its lines."""
    data = b"".join(line + b"\r\n" for line in text.encode().splitlines())
    encoding = "7bit"
    if not SIMPLE.fullmatch(data):
        quoted, based = binascii.b2a_qp(data), base64.encodebytes(data).replace(b"\n", b"\r\n")
        encoding, data = ("base64", based) if len(based) < len(quoted) else ("quoted-printable", quoted)
    header = f'Content-Type: text/{kind}; charset="utf-8"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n'
    return header.encode() + data


def _unquoted(name: str) -> str:
    if len(name) > 1 and name[0] == name[-1] == '"':
        return re.sub(r"\\(.)", r"\1", name[1:-1]).strip()
    return name
