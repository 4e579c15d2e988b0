"""Firebase Cloud Messaging, HTTP v1, with the endpoint that gives access tokens to its service account.

Its address is the sandbox's and `/fcm`. A token of a device is a script as it stands (`scripts.py`), and the names of
FCM's errors are words: `unregistered+phone-1`, `quota_exceededx2+phone-1`. What carries the same tag takes the place of
what is on the device, so it is counted there and is no second push.
"""

import base64
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from pydantic import BaseModel, ValidationError

from sandbox import scripts
from sandbox.scripts import ACCEPT, Action, Kind
from sandbox.server import RETRY_AFTER, answer, play
from sandbox.service_account import Verifier
from sandbox.store import Store

SERVER = "fcm"
LIFETIME = 3_600  # seconds
MAX_PAYLOAD = 4_096
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"

NOT_A_TOKEN = "The registration token is not a valid FCM registration token"  # noqa: S105

# By the word: the HTTP status, Google's status, FCM's own code, and what is said.
ERRORS = {
    "invalid_token": (400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", NOT_A_TOKEN),
    "invalid_argument": (400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "Request contains an invalid argument."),
    "invalid_field": (400, "INVALID_ARGUMENT", "", "Invalid value at 'message.data[0].value' (TYPE_STRING), 12"),
    "unauthenticated": (401, "UNAUTHENTICATED", "", "Request had invalid authentication credentials."),
    "third_party_auth_error": (401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR", "Auth error from APNS or Web Push."),
    "apns_auth_error": (401, "UNAUTHENTICATED", "APNS_AUTH_ERROR", "Auth error from APNS."),
    "permission_denied": (403, "PERMISSION_DENIED", "", "The caller does not have permission"),
    "sender_id_mismatch": (403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", "SenderId mismatch"),
    "not_found": (404, "NOT_FOUND", "", "Requested entity was not found."),
    "unregistered": (404, "NOT_FOUND", "UNREGISTERED", "Requested entity was not found."),
    "quota_exceeded": (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Quota exceeded for the project."),
    "device_quota_exceeded": (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Message rate exceeded."),
    "internal": (500, "INTERNAL", "INTERNAL", "Internal error encountered."),
    "unavailable": (503, "UNAVAILABLE", "UNAVAILABLE", "The service is currently unavailable."),
    # With a time to come back at, which FCM may name.
    "throttle": (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Quota exceeded for the project."),
    "down": (503, "UNAVAILABLE", "UNAVAILABLE", "The service is currently unavailable."),
}
TIMED = ("throttle", "down")
DETAILS: Mapping[str, list[dict[str, Any]]] = {
    "invalid_field": [{"@type": BAD_REQUEST, "fieldViolations": [{"field": "message.data[0].value"}]}],
    "device_quota_exceeded": [
        {"@type": QUOTA_FAILURE, "violations": [{"subject": "device", "description": "Device message rate exceeded"}]}
    ],
}


def error(word: str) -> Action:
    return Action(Kind.REFUSE, code=ERRORS[word][0], status=word)


WORDS: scripts.Words = {
    **{word: error(word) for word in ERRORS},
    "bounce": error("unregistered"),
    "reject": error("invalid_field"),
    "invalid": error("invalid_token"),
}


class Push(BaseModel):
    """What is read of the message."""

    token: str
    notification: dict[str, str] = {}
    data: dict[str, str] = {}
    android: dict[str, Any] = {}


class Body(BaseModel):
    """The body of messages:send."""

    message: Push


class Fcm:
    """POST /fcm/v1/projects/{project}/messages:send · POST /fcm/token · PUT /fcm/outage {"seconds": 5}, where 0 ends
    it.
    """

    def __init__(self, store: Store, account: str, *, lifetime: int = LIFETIME) -> None:
        """`account` is the service account's file. Raises ValueError."""
        self._store = store
        self._verifier = Verifier.of(account)
        self._lifetime = lifetime
        self._tokens: dict[str, float] = {}
        self._down_until = 0.0
        self.given = 0
        """How many access tokens were."""

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.post("/fcm/v1/projects/{project}/messages:send", self.send)
        yield web.post("/fcm/token", self.give_token)
        yield web.put("/fcm/outage", self.put_outage)
        yield web.post("/fcm/{rest:.*}", self.find_nothing)

    def revoke(self) -> None:
        """No token that was given is good any more."""
        self._tokens.clear()

    async def send(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            push = Body.model_validate_json(raw).message
        except ValidationError:
            return refuse(error("invalid_field"))
        action = self._fault(request, push) or await self._action(push.token)
        key = push.android.get("notification", {}).get("tag")
        await self._store.add_request(SERVER, push.token, str(action), delivery_key=key)
        return await play(request, action, lambda: self._accept(push, key), refuse)

    async def give_token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("grant_type") != GRANT or not self._is_ours(str(form.get("assertion", "")), str(request.url)):
            return answer({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, status=400)
        token = f"ya29.{secrets.token_urlsafe(24)}"
        self._tokens[token] = time.monotonic() + self._lifetime
        self.given += 1
        return answer({"access_token": token, "expires_in": self._lifetime, "token_type": "Bearer"})

    async def put_outage(self, request: web.Request) -> web.Response:
        """From now on, for so many seconds, nothing is taken, and all of it may be sent again."""
        try:
            seconds = float((await request.json())["seconds"])
        except (ValueError, KeyError, TypeError):
            return answer({"error": "seconds: must be a number"}, status=400)
        self._down_until = time.monotonic() + seconds
        return web.Response(status=204)

    async def find_nothing(self, _: web.Request) -> web.Response:
        return refuse(Action(Kind.REFUSE, code=404))

    def _fault(self, request: web.Request, push: Push) -> Action | None:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._tokens.get(bearer, 0) <= time.monotonic():
            return error("unauthenticated")
        if request.match_info["project"] != self._verifier.project:
            return error("permission_denied")
        if time.monotonic() < self._down_until:
            return error("down")
        if len(json.dumps([push.notification, push.data]).encode()) > MAX_PAYLOAD:
            return error("invalid_field")
        return None

    async def _action(self, token: str) -> Action:
        script = scripts.of_address(token, WORDS)
        return script.action(await self._store.count_play(SERVER, token)) if script.steps else ACCEPT

    async def _accept(self, push: Push, key: str | None) -> web.Response:
        content = {**push.notification, "data": push.data}
        name = f"projects/{self._verifier.project}/messages/{uuid4().hex}"
        await self._store.add_message(SERVER, push.token, content, taken_as=name, replaces=key)
        return answer({"name": name})

    def _is_ours(self, assertion: str, url: str) -> bool:
        """Whether it is a JWT of our account, signed by its key, for this endpoint and now."""
        try:
            signed, _, signature = assertion.rpartition(".")
            self._verifier.key.verify(_decoded(signature), signed.encode(), PKCS1v15(), hashes.SHA256())
            claims = json.loads(_decoded(signed.partition(".")[2]))
            in_time = claims["iat"] - 60 <= time.time() < claims["exp"] <= claims["iat"] + LIFETIME
        except (InvalidSignature, ValueError, KeyError, TypeError):
            return False
        return in_time and (claims["iss"], claims["aud"]) == (self._verifier.email, url)


def refuse(action: Action) -> web.Response:
    if action.status not in ERRORS:
        return web.Response(status=action.code, text="<html>As the script says</html>", content_type="text/html")
    code, status, own, message = ERRORS[action.status]
    details = list(DETAILS.get(action.status, ()))
    if own:
        details.insert(0, {"@type": FCM_ERROR, "errorCode": own})
    body = {"error": {"code": code, "message": message, "status": status, "details": details}}
    return answer(body, code, {"Retry-After": str(RETRY_AFTER)} if action.status in TIMED else None)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
