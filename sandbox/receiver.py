"""A webhook receiver as customers should have one: it verifies, deduplicates, and counts what comes again."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web

from sandbox import scripts
from sandbox.scripts import HTTP_WORDS, Action, Kind
from sandbox.server import answer, play
from sandbox.store import Row, Store

SERVER = "webhook"
TOLERANCE = 300  # seconds that a timestamp may be off, either way
PREFIX = "whsec_"
UNREADABLE = (ValueError, RecursionError)  # what reading somebody's JSON raises; the second where it is nested deep
UNVERIFIED = Action(Kind.REFUSE, code=401)


class Receiver:
    """POST /webhooks/{name}?script= · GET /webhooks/{name}?containing= (in the body) · PUT /webhooks/{name}/secret
    {"secret": "whsec_…"}.

    An endpoint is whatever name is posted to. Until it has a secret, it takes everything and verifies nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.post("/webhooks/{name}", self.receive)
        yield web.get("/webhooks/{name}", self.list_events)
        yield web.put("/webhooks/{name}/secret", self.put_secret)

    async def receive(self, request: web.Request) -> web.StreamResponse:
        name, body = request.match_info["name"], await request.read()
        webhook_id = request.headers.get("webhook-id", "")
        secret = await self._store.get_webhook_secret(name)
        verified = verify(secret, request.headers, body, time.time()) if secret else None
        action = UNVERIFIED if verified is False else await self._action(request, name, webhook_id)
        await self._store.add_request(SERVER, name, str(action), delivery_key=webhook_id)
        status = 204 if action.kind is Kind.ACCEPT else action.code
        text = body.decode(errors="replace").replace("\x00", "\ufffd")
        await self._store.add_webhook(name, webhook_id, text, verified=verified, answer=status)
        return await play(request, action, _accept)

    async def list_events(self, request: web.Request) -> web.Response:
        name, containing = request.match_info["name"], request.query.get("containing")
        return answer([_event(row) for row in await self._store.list_webhooks(name, containing)])

    async def put_secret(self, request: web.Request) -> web.Response:
        try:
            secret = str((await request.json())["secret"])
            key_of(secret)
        except (*UNREADABLE, KeyError, TypeError):
            return answer({"error": "secret: must be whsec_ and 24 to 64 bytes in base64"}, status=400)
        await self._store.put_webhook_secret(request.match_info["name"], secret)
        return web.Response(status=204)

    async def _action(self, request: web.Request, name: str, webhook_id: str) -> Action:
        script = scripts.parse(request.query.get("script") or name, HTTP_WORDS)
        if not script.steps:
            return scripts.ACCEPT
        return script.action(await self._store.count_play(SERVER, f"{name}/{webhook_id}"))


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Standard Webhooks, version 1: one of the `v1` signatures is ours, and the timestamp is of now."""
    webhook_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (webhook_id and timestamp.isascii() and timestamp.isdigit()) or abs(now - int(timestamp)) > TOLERANCE:
        return False
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256))
    offered = [entry.partition(",") for entry in headers.get("webhook-signature", "").split(" ")]
    return any(
        version == "v1" and hmac.compare_digest(signature.encode(), expected) for version, _, signature in offered
    )


def key_of(secret: str) -> bytes:
    """Raises ValueError."""
    if not secret.startswith(PREFIX):
        raise ValueError("not a secret of Standard Webhooks")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if not 24 <= len(key) <= 64:
        raise ValueError("not a key of 24 to 64 bytes")
    return key


async def _accept() -> web.Response:
    return web.Response(status=204)


def _event(row: Row) -> dict[str, Any]:
    body: Any = None
    with suppress(*UNREADABLE):
        body = json.loads(row["body"])
    return {
        "id": row["webhook_id"],
        "type": body.get("type") if isinstance(body, dict) else None,
        "body": body,
        "verified": row["verified"],
        "deliveries": len(row["answers"]),
        "answers": row["answers"],
        "received_at": row["received_at"],
    }
