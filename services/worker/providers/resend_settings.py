"""Which account of Resend sends, and as whom. Durations are seconds."""

import re
from dataclasses import dataclass, field

from services.worker.providers.connection import check_url
from services.worker.providers.mail import Mailbox

URL = "https://api.resend.com"
KEY = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendSettings:
    """Raises ValueError where they cannot work; the message names the setting and no value."""

    api_key: str = field(repr=False)
    sender: str
    """From whom a mail is that names no sender: an address, or `Name <address>`, of a domain that is verified."""
    url: str = URL
    timeout: float = 30.0
    """From the start to the end of the answer."""

    def __post_init__(self) -> None:
        Mailbox.parse("sender", self.sender)
        if not KEY.fullmatch(self.api_key):
            raise ValueError("api_key: must be one word")
        check_url(self.url)
