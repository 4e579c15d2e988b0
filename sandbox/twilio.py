"""Twilio's Programmable Messaging, as far as a worker sees of it: one account, one way to send, no duplicates known.

Its address is the sandbox's and `/twilio`. Scripts stand in telephone numbers (`scripts.py`). Besides, there are the
magic numbers of Twilio's own test credentials, and a sender `E21659` or `E500` is refused with that code or status.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from hmac import compare_digest
from uuid import uuid4

from aiohttp import web

from sandbox import accounts, scripts
from sandbox.scripts import ACCEPT, Action, Kind
from sandbox.server import answer, play
from sandbox.store import Store

SERVER = "twilio"
ACCOUNT_SID = accounts.TWILIO_SID
API_KEY_SID = "SK" + "5a" * 16
AUTH_TOKEN = accounts.TWILIO_TOKEN

MAX_TEXT = 1_600
NUMBER = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)
ERROR_SENDER = re.compile(r"E(?P<code>[0-9]{3}|[0-9]{5})", re.ASCII)

WORDS: scripts.Words = {
    "bounce": Action(Kind.REFUSE, code=400, status="21614"),
    "reject": Action(Kind.REFUSE, code=400, status="21617"),
    "throttle": Action(Kind.REFUSE, code=429, status="20429"),
    "down": Action(Kind.REFUSE, code=503),
}
RECIPIENTS = {
    "+15005550001": "21211",
    "+15005550002": "21612",
    "+15005550003": "21408",
    "+15005550004": "21610",
    "+15005550009": "21614",
}
SENDERS = {"+15005550001": "21212", "+15005550007": "21606", "+15005550008": "21611"}
STATUSES = {"20003": 401, "20005": 401, "20404": 404, "20429": 429, "20500": 500}
MESSAGES = {
    "20003": "Authenticate",
    "20404": "The requested resource was not found",
    "20429": "Too Many Requests",
    "21211": "Invalid 'To' Phone Number",
    "21602": "Message body is required.",
    "21603": "A 'From' phone number is required.",
    "21604": "A 'To' phone number is required.",
    "21610": "Attempt to send to unsubscribed recipient",
    "21617": "The concatenated message body exceeds the 1600 character limit.",
}


class Twilio:
    """POST /twilio/2010-04-01/Accounts/{sid}/Messages.json."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.post("/twilio/2010-04-01/Accounts/{account}/Messages.json", self.create)
        yield web.post("/twilio/{rest:.*}", self.find_nothing)

    async def create(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        action = _login(request) or await self._action(form)
        await self._store.add_request(SERVER, form.get("To", ""), str(action))
        return await play(request, action, lambda: self._accept(form), refuse)

    async def find_nothing(self, _: web.Request) -> web.Response:
        return refuse(_error("20404"))

    async def _action(self, form: dict[str, str]) -> Action:
        if code := _fault(form):
            return _error(code)
        script = scripts.of_address(form["To"], WORDS)
        return script.action(await self._store.count_play(SERVER, form["To"])) if script.steps else ACCEPT

    async def _accept(self, form: dict[str, str]) -> web.Response:
        sid = f"SM{uuid4().hex}"
        content = {"from": _sender(form), "text": form["Body"]}
        await self._store.add_message(SERVER, form["To"], content, taken_as=sid)
        created = {
            "account_sid": ACCOUNT_SID,
            "api_version": "2010-04-01",
            "body": form["Body"],
            "direction": "outbound-api",
            "error_code": None,
            "error_message": None,
            "from": form.get("From"),
            "messaging_service_sid": form.get("MessagingServiceSid"),
            "num_media": "0",
            "sid": sid,
            "status": "accepted" if "MessagingServiceSid" in form else "queued",
            "to": form["To"],
        }
        return answer(created, status=201)


def refuse(action: Action) -> web.Response:
    """Twilio names no time to come back at."""
    body = {
        "code": int(action.status or 0) or None,
        "message": MESSAGES.get(action.status, "As the script says"),
        "more_info": f"https://www.twilio.com/docs/errors/{action.status}",
        "status": action.code,
    }
    return answer(body if action.status else {"message": body["message"], "status": action.code}, status=action.code)


def _error(code: str) -> Action:
    """With one of Twilio's codes, or with a status alone."""
    if len(code) == 3:
        return Action(Kind.REFUSE, code=int(code))
    return Action(Kind.REFUSE, code=STATUSES.get(code, 400), status=code)


def _login(request: web.Request) -> Action | None:
    if request.match_info["account"] != ACCOUNT_SID:
        return _error("20404")
    given = request.headers.get("Authorization", "").removeprefix("Basic ")
    good = (b64encode(f"{user}:{AUTH_TOKEN}".encode()).decode() for user in (ACCOUNT_SID, API_KEY_SID))
    return None if any(compare_digest(given.encode(), each.encode()) for each in good) else _error("20003")


def _sender(form: dict[str, str]) -> str:
    return form.get("From") or form.get("MessagingServiceSid") or ""


def _fault(form: dict[str, str]) -> str:
    """The code of what is wrong with a request; empty where nothing is."""
    sender = _sender(form)
    if scripted := ERROR_SENDER.fullmatch(sender):
        return scripted["code"]
    if not sender:
        return "21603"
    if not form.get("To"):
        return "21604"
    if not form.get("Body"):
        return "21602"
    if len(form["Body"]) > MAX_TEXT:
        return "21617"
    if not NUMBER.fullmatch(form["To"]):
        return "21211"
    return SENDERS.get(sender) or RECIPIENTS.get(form["To"], "")
