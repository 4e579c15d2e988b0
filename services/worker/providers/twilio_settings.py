"""Which account of Twilio sends, and as whom. Durations are seconds."""

import re
from dataclasses import dataclass, field

from services.worker.providers.connection import check_url

ACCOUNT = re.compile(r"AC[0-9a-fA-F]{32}", re.ASCII)
API_KEY = re.compile(r"SK[0-9a-fA-F]{32}", re.ASCII)
MESSAGING_SERVICE = re.compile(r"MG[0-9a-fA-F]{32}", re.ASCII)
# A number in E.164, a short code, or letters and digits where a country has them.
SENDER = re.compile(r"\+[1-9][0-9]{6,14}|[0-9]{3,8}|(?=[A-Za-z0-9 ]*[A-Za-z])[A-Za-z0-9 ]{1,11}", re.ASCII)

URL = "https://api.twilio.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwilioSettings:
    """Raises ValueError where they cannot work; the message names the setting and no value."""

    account_sid: str
    secret: str = field(repr=False)
    """The account's auth token, or the API key's secret."""
    sender: str
    """A number, a short code, an alphanumeric sender, or the SID of a messaging service."""
    api_key_sid: str = ""
    """Default: the account itself."""
    url: str = URL
    timeout: float = 10.0
    """From the start to the end of the answer."""

    def __post_init__(self) -> None:
        if not ACCOUNT.fullmatch(self.account_sid):
            raise ValueError("account_sid: must be AC and 32 hexadecimal digits")
        if self.api_key_sid and not API_KEY.fullmatch(self.api_key_sid):
            raise ValueError("api_key_sid: must be SK and 32 hexadecimal digits")
        if not (SENDER.fullmatch(self.sender) or self.is_service):
            raise ValueError("sender: must be a number, a short code, a name of 11 characters, or MG…")
        check_url(self.url)

    @property
    def is_service(self) -> bool:
        return MESSAGING_SERVICE.fullmatch(self.sender) is not None
