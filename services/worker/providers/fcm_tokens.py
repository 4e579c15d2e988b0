"""Access tokens of a service account (RFC 7523), fetched once for all who wait, and anew before they expire.

google-auth signs; the request is ours, because the library's blocks, and is repeated without being asked.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlencode

from google.auth import jwt

from services.worker.providers import Answer, Handover, Outcome
from services.worker.providers.answers import Judge
from services.worker.providers.fcm_codes import TOKENS
from services.worker.providers.fcm_settings import ServiceAccount
from services.worker.providers.http import Http, Unanswered
from shared.clock import tick

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME = 3600  # seconds, the longest that Google gives
EARLY = 300.0  # seconds before the end at which the next one is fetched
RETRY = 10.0  # seconds between attempts to do so while there is one that is good


class NoToken(Exception):
    """Nobody may send. `outcome` is what that means for a notification that would have."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


class Tokens:
    def __init__(self, account: ServiceAccount, http: Http) -> None:
        self.judge = Judge("fcm token")
        self._account = account
        self._http = http
        self._token = ""
        self._ends = self._renews = 0.0
        self._worked = False
        self._fetching: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        if self._fetching:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def get(self) -> str:
        """One that is good for a while. Raises NoToken."""
        if tick() >= self._ends:
            await asyncio.shield(self._fetch())  # others wait for it, too
        elif tick() >= self._renews:
            self._fetch()
        return self._token

    def accept(self, token: str) -> None:
        """It was good for a request."""
        self._worked |= token == self._token

    def refuse(self, token: str) -> bool:
        """It was not. Answers whether another may be: one that has worked was revoked, one that never has is as good
        as the account.
        """
        if token != self._token:
            return True  # a newer one is here already
        self._ends = self._renews = 0.0
        return self._worked

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._renew(), name="fcm token")
            self._fetching.add_done_callback(_looked_at)
        return self._fetching

    async def _renew(self) -> None:
        self._renews = tick() + RETRY  # until it is known better
        try:
            reply = await self._http.post(
                self._account.token_url,
                urlencode({"grant_type": GRANT, "assertion": await asyncio.to_thread(self._assertion)}).encode(),
                {"Content-Type": "application/x-www-form-urlencoded"},
                Handover(),
            )
        except Unanswered as unanswered:
            how = (unanswered.outcome.code or "").rpartition("-")[2]
            raise NoToken(Outcome(Answer.TRANSIENT, f"token-{how}")) from None
        token = reply.text("access_token")
        if not (200 <= reply.status < 300 and token.isascii() and token.isprintable() and token):
            outcome = self.judge(TOKENS, reply, reply.text("error"))
            raise NoToken(Outcome(outcome.answer, f"token-{outcome.code}", not_before=outcome.not_before))
        lifetime = float(reply.text("expires_in")) if reply.text("expires_in").isdecimal() else LIFETIME
        self._token, self._worked = token, False
        self._ends = tick() + lifetime
        self._renews = self._ends - min(EARLY, lifetime / 2)

    def _assertion(self) -> str:
        now = int(datetime.now(UTC).timestamp())  # Google compares it with its own
        claims = {
            "iss": self._account.email,
            "scope": SCOPE,
            "aud": self._account.token_url,
            "iat": now,
            "exp": now + LIFETIME,
        }
        return bytes(jwt.encode(self._account.signer, claims)).decode()


def _looked_at(task: "asyncio.Task[None]") -> None:
    """Where nobody waits for it, that there is no token is seen when the old one ends."""
    with suppress(asyncio.CancelledError):
        task.exception()
