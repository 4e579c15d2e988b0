"""What arrived, to look at: mails, and every request that any of the servers was sent."""

from collections.abc import Iterable

from aiohttp import web

from sandbox.server import answer
from sandbox.store import Store


class Inbox:
    """GET /mails?address=&containing= (in the address) · GET /mails/{delivery_key}, a list of its copies · GET
    /messages?server=&address=&containing= (in the address or the content) · GET /requests?server=&address= · GET
    /healthz.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.get("/mails", self.list_mails)
        yield web.get("/mails/{delivery_key}", self.get_mail)
        yield web.get("/messages", self.list_messages)
        yield web.get("/requests", self.list_requests)
        yield web.get("/healthz", self.ping)

    async def list_mails(self, request: web.Request) -> web.Response:
        address, containing = request.query.get("address"), request.query.get("containing")
        return answer(await self._store.list_mails(address=address, containing=containing))

    async def get_mail(self, request: web.Request) -> web.Response:
        copies = await self._store.list_mails(delivery_key=request.match_info["delivery_key"])
        return answer(copies, status=200 if copies else 404)

    async def list_messages(self, request: web.Request) -> web.Response:
        wanted = (request.query.get(name) for name in ("server", "address", "containing"))
        return answer(await self._store.list_messages(*wanted))

    async def list_requests(self, request: web.Request) -> web.Response:
        return answer(await self._store.list_requests(request.query.get("server"), request.query.get("address")))

    async def ping(self, _: web.Request) -> web.Response:
        await self._store.ping()
        return answer({"status": "ok"})
