"""Resend's `POST /emails`, with its idempotency keys. What it takes is a mail in the inbox.

Its address is the sandbox's and `/resend`. Scripts stand in mail addresses (`scripts.py`), and the name of any of its
errors is one: `daily_quota_exceeded+anna@example.org`.
"""

import hashlib
from collections.abc import Iterable
from email.utils import parseaddr
from hmac import compare_digest
from typing import Annotated
from uuid import uuid4

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from sandbox import accounts, scripts
from sandbox.scripts import ACCEPT, Action, Kind
from sandbox.server import RETRY_AFTER, answer, play
from sandbox.store import Mail, Store

SERVER = "resend"
API_KEY = accounts.RESEND_KEY
MAX_KEY = 256

ERRORS = {
    "invalid_idempotency_key": (400, "The key must be between 1-256 chars."),
    "validation_error": (400, "We found an error with one or more fields in the request."),
    "missing_api_key": (401, "Missing API key in the authorization header."),
    "restricted_api_key": (401, "This API key is restricted to only send emails."),
    "invalid_api_key": (403, "API key is invalid."),
    "not_found": (404, "The requested endpoint does not exist."),
    "method_not_allowed": (405, "Method is not allowed for the requested path."),
    "invalid_idempotent_request": (409, "Same idempotency key used with a different request payload."),
    "concurrent_idempotent_requests": (409, "Same idempotency key used while original request is still in progress."),
    "invalid_attachment": (422, "Attachment must have either a `content` or `path`."),
    "invalid_from_address": (422, "Invalid `from` field."),
    "invalid_access": (422, 'Access must be "full_access" | "sending_access".'),
    "invalid_parameter": (422, "The parameter must be a valid UUID."),
    "invalid_region": (422, 'Region must be "us-east-1" | "eu-west-1" | "sa-east-1".'),
    "missing_required_field": (422, "The request body is missing one or more required fields."),
    "daily_quota_exceeded": (429, "You have reached your daily email sending quota."),
    "monthly_quota_exceeded": (429, "You have reached your monthly email sending quota."),
    "rate_limit_exceeded": (429, "Too many requests."),
    "security_error": (451, "We may have found a security issue with the request."),
    "application_error": (500, "An unexpected error occurred."),
    "internal_server_error": (500, "An unexpected error occurred."),
}


def error(name: str) -> Action:
    return Action(Kind.REFUSE, code=ERRORS[name][0], status=name)


WORDS: scripts.Words = {
    **{name: error(name) for name in ERRORS},
    "unverified_domain": Action(Kind.REFUSE, code=403, status="validation_error"),
    "bounce": Action(Kind.REFUSE, code=422, status="validation_error"),
    "reject": error("validation_error"),
    "throttle": error("rate_limit_exceeded"),
    "down": Action(Kind.REFUSE, code=503),
}


class Email(BaseModel):
    """The body of POST /emails."""

    sender: Annotated[str, Field(alias="from", min_length=3)]
    to: Annotated[list[str], Field(min_length=1, max_length=1)]
    subject: str
    text: str | None = None
    html: str | None = None
    reply_to: list[str] = []
    headers: dict[str, str] = {}


class Resend:
    """POST /resend/emails."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: set[str] = set()

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.post("/resend/emails", self.send)
        yield web.post("/resend/{rest:.*}", self.find_nothing)

    async def send(self, request: web.Request) -> web.StreamResponse:
        raw, key = await request.read(), request.headers.get("Idempotency-Key")
        try:
            mail = Email.model_validate_json(raw)
        except ValidationError:
            return refuse(error("missing_required_field"))
        (address,) = mail.to
        if key is None:
            return await self._send(request, mail, raw, None)
        if key in self._under_way:
            return await self._refuse(error("concurrent_idempotent_requests"), address, key)
        self._under_way.add(key)
        try:
            return await self._send(request, mail, raw, key)
        finally:
            self._under_way.discard(key)

    async def find_nothing(self, _: web.Request) -> web.Response:
        return refuse(error("not_found"))

    async def _send(self, request: web.Request, mail: Email, raw: bytes, key: str | None) -> web.StreamResponse:
        (address,) = mail.to
        action = _fault(request, key) or await self._action(address)
        fingerprint = hashlib.sha256(raw).digest()
        known = await self._store.get_answer(SERVER, key) if key else None
        if action.accepts and known and known["fingerprint"] != fingerprint:
            action = error("invalid_idempotent_request")
        await self._store.add_request(SERVER, address, str(action), delivery_key=key)

        async def accept() -> web.Response:
            said = known["answer"] if known else await self._accept(mail, raw, key)
            if key:
                await self._store.put_answer(SERVER, key, fingerprint, said)
            return answer(said)

        return await play(request, action, accept, refuse)

    async def _refuse(self, action: Action, address: str, key: str) -> web.Response:
        await self._store.add_request(SERVER, address, str(action), delivery_key=key)
        return refuse(action)

    async def _action(self, address: str) -> Action:
        script = scripts.of_address(address, WORDS)
        return script.action(await self._store.count_play(SERVER, address)) if script.steps else ACCEPT

    async def _accept(self, mail: Email, raw: bytes, key: str | None) -> dict[str, str]:
        sender = parseaddr(mail.sender)[1]
        (address,) = mail.to
        await self._store.add_mail(Mail(key, address, sender, mail.subject, mail.text, mail.html, raw))
        return {"id": str(uuid4())}


def refuse(action: Action) -> web.Response:
    body = {"statusCode": action.code, "name": action.status, "message": ERRORS.get(action.status, (0, "Scripted"))[1]}
    headers = {"retry-after": str(RETRY_AFTER)} if action.status == "rate_limit_exceeded" else None
    return answer(body if action.status else {"message": body["message"]}, status=action.code, headers=headers)


def _fault(request: web.Request, key: str | None) -> Action | None:
    given = request.headers.get("Authorization", "")
    if not given:
        return error("missing_api_key")
    if not compare_digest(given.encode(), f"Bearer {API_KEY}".encode()):
        return error("invalid_api_key")
    if key is not None and not 0 < len(key) <= MAX_KEY:
        return error("invalid_idempotency_key")
    return None
