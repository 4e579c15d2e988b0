"""One spelling for each address, so that equal addresses are equal text."""

import re
from collections.abc import Callable, Mapping

import email_validator
from email_validator import EmailNotValidError, validate_email

from services.scheduler.phones import canonical_phone

MAX_LENGTH = 254  # RFC 5321, 4.5.3.1.3, less the brackets

# The longest tokens have a few hundred characters; an entry of an index has room for 2,700 bytes.
MAX_TOKEN = 2_048
TOKEN = re.compile(rf"[!-~]{{1,{MAX_TOKEN}}}")

# RFC 5322, 3.2.3 and 3.2.4, with the dots that 4.1 allows in names that people write.
SPECIALS = r'()<>\[\]:;@\\,"'
MAILBOX = re.compile(rf'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"\s*|(?P<plain>[^{SPECIALS}]*))<(?P<address>[^<>]*)>')
PLAIN_NAME = re.compile(rf"[^{SPECIALS}]*")

# Whether anybody takes mail there is the provider's answer, so private and reserved domains are fine. The library
# refuses them by a list that it says to change.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()


def canonical_email(text: str) -> str:
    """The domain in lower case and IDNA; the local part as it is, for its case may matter to its host.

    Raises ValueError; its message says what is wrong and quotes nothing.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    try:
        valid = validate_email(text, check_deliverability=False, globally_deliverable=False, strict=True)
    except EmailNotValidError:
        raise ValueError("is not an email address") from None
    return f"{valid.local_part}@{valid.ascii_domain}"


def canonical_mailbox(text: str) -> str:
    """An address, or `Name <address>`, with the name quoted where it must be. Raises ValueError as above."""
    if "<" not in text:
        return canonical_email(text.strip())
    mailbox = MAILBOX.fullmatch(text.strip())
    if not mailbox:
        raise ValueError("must be one address, or Name <address>")
    address = canonical_email(mailbox["address"].strip())
    name = _name(mailbox)
    return f"{name} <{address}>" if name else address


def _name(mailbox: re.Match[str]) -> str:
    name = re.sub(r"\\(.)", r"\1", mailbox["quoted"]) if mailbox["plain"] is None else mailbox["plain"]
    name = name.strip()
    return name if PLAIN_NAME.fullmatch(name) else '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def canonical_token(text: str) -> str:
    """As it is: a token means nothing to anybody but the provider. Raises ValueError as above."""
    if not TOKEN.fullmatch(text):
        raise ValueError(f"must have 1 to {MAX_TOKEN} printable ASCII characters and no spaces")
    return text


# By channel. A telephone number may still lack its country.
CANONICAL: Mapping[str, Callable[[str], str]] = {
    "EMAIL": canonical_email,
    "SMS": canonical_phone,
    "PUSH": canonical_token,
}
