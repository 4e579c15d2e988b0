"""Text messages over Twilio's Programmable Messaging."""

from base64 import b64encode
from typing import Self
from urllib.parse import urlencode

from services.worker.providers import Answer, Handover, Message, Outcome, Provider
from services.worker.providers.answers import Judge
from services.worker.providers.http import Http, Unanswered
from services.worker.providers.twilio_codes import TABLE
from services.worker.providers.twilio_settings import TwilioSettings


class Twilio(Provider):
    """Twilio knows no idempotency key: an attempt without an answer may have been delivered, and a further one may
    double it.
    """

    name = "twilio"

    def __init__(self, settings: TwilioSettings) -> None:
        self._url = f"{settings.url.rstrip('/')}/2010-04-01/Accounts/{settings.account_sid}/Messages.json"
        login = f"{settings.api_key_sid or settings.account_sid}:{settings.secret}"
        self._headers = {
            "Authorization": f"Basic {b64encode(login.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        self._sender = {"MessagingServiceSid" if settings.is_service else "From": settings.sender}
        self._http = Http(timeout=settings.timeout)
        self.judge = Judge(self.name)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        text = message.content.get("text")
        if not (isinstance(text, str) and text):
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        try:
            body = urlencode({"To": message.address, **self._sender, "Body": text}).encode()
        except UnicodeEncodeError:  # a lone surrogate
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        try:
            reply = await self._http.post(self._url, body, self._headers, handover)
        except Unanswered as unanswered:
            return unanswered.outcome
        return self.judge(TABLE, reply, reply.text("code"), message_id=reply.text("sid"))
