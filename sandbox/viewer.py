"""The inbox page: what arrived, as it arrives. All that it shows came from outside, and none of it is trusted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from importlib import resources
from uuid import UUID

from aiohttp import web

from sandbox import arrivals
from sandbox.server import STOPPING, answer
from sandbox.store import Row, Store

PAGE = 50
TICK = 15.0  # seconds; for what another process took
QUIET = 0.2  # seconds, in which what arrives is told as one

KINDS = ("mail", "sms", "push", "webhook", "refused")
FILES = {"inbox.html": "text/html", "inbox.css": "text/css", "inbox.js": "text/javascript"}

SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
# The page may run its own file and make no HTML of text; it cannot be framed, nor lead its frames elsewhere.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
MAIL_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox"
)
# A mail is written for white paper.
MAIL = """<!doctype html><meta charset="utf-8"><style>:root {{ color-scheme: light; background: #fff }}
body {{ margin: 1rem; font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }}
img {{ max-width: 100% }} a {{ color: #2457c5; text-decoration: underline }}</style>
{}"""


class Viewer:
    """GET /inbox · GET /inbox/arrivals?kind=&containing=&before=time~ref · GET /inbox/arrivals/{ref} · GET
    /inbox/changes, a stream of events · GET /inbox/mails/{number}/html · GET /inbox/mails/{number}/source.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        folder = resources.files("sandbox").joinpath("web")
        self._files = {name: folder.joinpath(name).read_bytes() for name in FILES}

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.get("/", self.lead_here)
        yield web.get("/inbox", self.show)
        yield web.get("/inbox/{file:inbox[.](?:css|js)}", self.show)
        yield web.get("/inbox/arrivals", self.list_arrivals)
        yield web.get("/inbox/arrivals/{kind:mail|message|webhook|request}-{number:[0-9]{1,18}}", self.get_arrival)
        yield web.get("/inbox/arrivals/mock-{key}", self.get_mock_delivery)
        yield web.get("/inbox/changes", self.tell_changes)
        yield web.get("/inbox/mails/{number:[0-9]{1,18}}/html", self.get_html)
        yield web.get("/inbox/mails/{number:[0-9]{1,18}}/source", self.get_source)

    async def lead_here(self, _: web.Request) -> web.Response:
        raise web.HTTPFound("/inbox")

    async def show(self, request: web.Request) -> web.Response:
        name = request.match_info.get("file", "inbox.html")
        headers = SAFE | {"Content-Security-Policy": PAGE_POLICY}
        return web.Response(body=self._files[name], content_type=FILES[name], charset="utf-8", headers=headers)

    async def list_arrivals(self, request: web.Request) -> web.Response:
        kind, containing = request.query.get("kind") or None, request.query.get("containing", "").strip().lower()
        try:
            before = _moment(request.query["before"]) if "before" in request.query else None
        except ValueError:
            return answer({"error": "before: no end of a page"}, 400, SAFE)
        if kind not in (None, *KINDS) or "\x00" in containing:
            return answer({"error": f"kind: one of {', '.join(KINDS)}; containing: any text"}, 400, SAFE)
        rows = await self._store.list_arrivals(kind, containing or None, before)
        shown = [arrivals.line(row) for row in rows[:PAGE]]
        return answer({"arrivals": shown, "more": len(rows) > PAGE}, headers=SAFE)

    async def get_arrival(self, request: web.Request) -> web.Response:
        find: dict[str, tuple[Callable[[int], Awaitable[Row | None]], Callable[[Row], Row]]] = {
            "mail": (self._store.get_mail, arrivals.mail),
            "message": (self._store.get_message, arrivals.message),
            "webhook": (self._store.get_webhook, arrivals.webhook),
            "request": (self._store.get_request, arrivals.request),
        }
        read, shape = find[request.match_info["kind"]]
        row = await read(int(request.match_info["number"]))
        return await self._opened(row, shape)

    async def get_mock_delivery(self, request: web.Request) -> web.Response:
        try:
            key = UUID(request.match_info["key"])
        except ValueError:
            raise web.HTTPNotFound from None
        rows = await self._store.list_mock_deliveries(key=key)
        return await self._opened(next(iter(rows), None), arrivals.mock_delivery)

    async def get_html(self, request: web.Request) -> web.Response:
        row = await self._mail(request)
        html, _ = arrivals.rendition(row["html"] or "")
        headers = SAFE | {"Content-Security-Policy": MAIL_POLICY}
        return web.Response(text=MAIL.format(html), content_type="text/html", headers=headers)

    async def get_source(self, request: web.Request) -> web.Response:
        row = await self._mail(request)
        headers = SAFE | {"Content-Security-Policy": MAIL_POLICY}
        text = row["raw"].decode(errors="replace")
        return web.Response(text=text, content_type="text/plain", headers=headers)

    async def tell_changes(self, request: web.Request) -> web.StreamResponse:
        """An event when something has arrived, and one every now and then."""
        response = web.StreamResponse(headers=SAFE | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        stopping = request.app[STOPPING]
        while not stopping.is_set():
            arrival = self._store.arrival
            await response.write(b"data:\n\n")
            await asyncio.sleep(QUIET)
            await _first_of(arrival, stopping)
        return response

    async def _opened(self, row: Row | None, shape: Callable[[Row], Row]) -> web.Response:
        if row is None:
            raise web.HTTPNotFound
        shown = shape(row) | {"received_at": row["received_at"]}
        asked = await self._store.list_requests(*shown.pop("asked"))
        return answer(shown | {"requests": asked[:-21:-1]}, headers=SAFE)

    async def _mail(self, request: web.Request) -> Row:
        row = await self._store.get_mail(int(request.match_info["number"]))
        if row is None:
            raise web.HTTPNotFound
        return row


def _moment(text: str) -> tuple[datetime, str]:
    """Raises ValueError."""
    time, _, ref = text.partition("~")
    moment = datetime.fromisoformat(time)
    if moment.tzinfo is None or not ref or "\x00" in ref:
        raise ValueError("no end of a page")
    return moment, ref


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
