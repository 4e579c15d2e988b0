"""One spelling for each address, so that equal addresses are equal text."""

from email.headerregistry import Address
from email.utils import getaddresses

from email_validator import EmailNotValidError, validate_email

MAX_LENGTH = 254  # RFC 5321, 4.5.3.1.3, less the brackets


def canonical_email(text: str) -> str:
    """The domain in lower case and IDNA; the local part as it is, for its case may matter to its host.

    Raises ValueError; its message says what is wrong and quotes nothing.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    try:
        # Whether anybody takes mail there is the provider's answer, so private and reserved domains are fine.
        valid = validate_email(text, check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError:
        raise ValueError("is not an email address") from None
    return f"{valid.local_part}@{valid.ascii_domain}"


def canonical_mailbox(text: str) -> str:
    """An address, or `Name <address>`, as a header writes it. Raises ValueError as above."""
    parsed = getaddresses([text], strict=True)
    if len(parsed) != 1 or not parsed[0][1]:
        raise ValueError("must be one address, or Name <address>")
    name, address = parsed[0]
    canonical = canonical_email(address)
    return str(Address(name, addr_spec=canonical)) if name else canonical
