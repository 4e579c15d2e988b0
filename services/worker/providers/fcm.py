"""Push messages over Firebase Cloud Messaging, HTTP v1."""

import json
from collections.abc import Mapping
from typing import Self

from services.worker.providers import Answer, Handover, Message, Outcome, Provider
from services.worker.providers.answers import Judge
from services.worker.providers.fcm_codes import TABLE, read
from services.worker.providers.fcm_settings import FcmSettings
from services.worker.providers.fcm_tokens import NoToken, Tokens
from services.worker.providers.http import Http, Unanswered


class Fcm(Provider):
    """FCM knows no idempotency key, so an attempt without an answer may double a push. The second one takes the place
    of the first on the device: both carry our delivery key as what they are about.
    """

    name = "fcm"

    def __init__(self, settings: FcmSettings) -> None:
        project = settings.project or settings.account.project
        self._url = f"{settings.url.rstrip('/')}/v1/projects/{project}/messages:send"
        self._http = Http(timeout=settings.timeout)
        self._token_http = Http(timeout=settings.token_timeout)
        self.tokens = Tokens(settings.account, self._token_http)
        self.judge = Judge(self.name)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        await self._token_http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tokens.aclose()
        await self._token_http.__aexit__()
        await self._http.__aexit__()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            body = json.dumps({"message": _push(message)}).encode()
        except (TypeError, ValueError):
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        try:
            token = await self.tokens.get()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            reply = await self._http.post(self._url, body, headers, handover)
        except NoToken as lacking:
            return lacking.outcome
        except Unanswered as unanswered:
            return unanswered.outcome
        code, words = read(reply)
        outcome = self.judge(TABLE, reply, code, text=words, message_id=reply.text("name"))
        if outcome.code != "401-rpc.UNAUTHENTICATED":
            self.tokens.accept(token)
        elif self.tokens.refuse(token):
            # Not sent again here: an attempt is one request. The next one brings a new token.
            return Outcome(Answer.TRANSIENT, outcome.code)
        return outcome


def _push(message: Message) -> Mapping[str, object]:
    """Raises TypeError, ValueError."""
    content, key = message.content, str(message.delivery_key)
    shown = {name: _text(content.get(name)) for name in ("title", "body") if content.get(name)}
    data = content.get("data") or {}
    if not shown or not isinstance(data, Mapping):
        raise ValueError("nothing to push")
    return {
        "token": message.address,
        "notification": shown,
        "data": {_text(name): _text(value) for name, value in data.items()},
        # Not `collapse_key`: a device that is away keeps four of those, and loses what comes with a fifth.
        "android": {"notification": {"tag": key}},
        "apns": {"headers": {"apns-collapse-id": key}},
        "webpush": {"headers": {"Topic": message.delivery_key.hex}, "notification": {"tag": key}},
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
