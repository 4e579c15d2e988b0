"""Mail over Resend: the provider with the whole promise, since it knows our delivery key."""

import json
from collections.abc import Mapping
from typing import Self

from services.worker.providers import Answer, Handover, Message, Outcome, Provider
from services.worker.providers.answers import Judge
from services.worker.providers.http import Http, Unanswered
from services.worker.providers.mail import Mailbox, Malformed, custom_headers, one_line, text_of
from services.worker.providers.resend_codes import OWN_SENDER, TABLE
from services.worker.providers.resend_settings import ResendSettings


class Resend(Provider):
    """Under the same `Idempotency-Key` Resend sends a mail once within 24 hours, however often it is asked: an attempt
    without an answer is answered by the next one. The body of a notification is the same on every attempt.
    """

    name = "resend"

    def __init__(self, settings: ResendSettings) -> None:
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}/emails"
        self._http = Http(timeout=settings.timeout)
        self.judge = Judge(self.name)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            body = json.dumps(self._mail(message)).encode()
        except Malformed:
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        headers = {
            "Authorization": f"Bearer {self._settings.api_key}",
            "Content-Type": "application/json",
            "Idempotency-Key": str(message.delivery_key),
        }
        try:
            reply = await self._http.post(self._url, body, headers, handover)
        except Unanswered as unanswered:
            return unanswered.outcome
        table = OWN_SENDER if message.content.get("sender") else TABLE
        return self.judge(table, reply, reply.text("name"), message_id=reply.text("id"))

    def _mail(self, message: Message) -> Mapping[str, object]:
        """Raises Malformed."""
        content = message.content
        sender = text_of(content, "sender") or self._settings.sender
        Mailbox.parse("sender", sender)
        mail: dict[str, object] = {
            "from": sender,
            "to": [Mailbox.parse("address", message.address).address],
            "subject": one_line("subject", text_of(content, "subject")),
            # RFC 3834: keeps out-of-office replies away
            "headers": {"Auto-Submitted": "auto-generated"} | custom_headers(content.get("headers") or {}),
        }
        if reply_to := text_of(content, "reply_to"):
            mail["reply_to"] = [Mailbox.parse("reply_to", reply_to).address]
        bodies = {kind: text_of(content, kind) for kind in ("text", "html")}
        return mail | {kind: body for kind, body in bodies.items() if body}
