"""A provider as one would wish it: it deduplicates on the delivery key, for all workers at once and for ever."""

import random
import time
from collections.abc import Iterable
from typing import Annotated, Any
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from sandbox import scripts
from sandbox.scripts import HTTP_WORDS, Action, Kind
from sandbox.server import answer, play
from sandbox.store import Store

SERVER = "mock"
INVALID = Action(Kind.REFUSE, code=422)
# Nothing was processed, and it may be sent again: the one status below 500 that says just that (RFC 8470).
TRANSIENT = Action(Kind.REFUSE, code=425)


class Delivery(BaseModel):
    """The body of POST /mock/deliver."""

    delivery_key: UUID
    attempt: Annotated[int, Field(ge=1)]
    channel: str
    address: str
    content: dict[str, Any]


class MockProvider:
    """POST /mock/deliver · GET /mock/deliveries?address=&delivery_key=&containing= (in the address or the content) ·
    PUT /mock/outages/{channel} {"seconds": 5}, where 0 ends it.

    An address that begins with `invalid` is refused; `transient_rate` of the rest fails by chance, where no script
    says otherwise. A telephone number cannot begin so: `+1 NPA 555 0110` is refused like that.
    """

    def __init__(self, store: Store, transient_rate: float = 0.0, dice: random.Random | None = None) -> None:
        self._store = store
        self._transient_rate = transient_rate
        self._dice = dice or random.Random()
        self._down_until: dict[str, float] = {}

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.post("/mock/deliver", self.deliver)
        yield web.get("/mock/deliveries", self.list_deliveries)
        yield web.put("/mock/outages/{channel}", self.put_outage)

    async def deliver(self, request: web.Request) -> web.StreamResponse:
        try:
            delivery = Delivery.model_validate_json(await request.read())
        except ValidationError:
            return answer({"error": "not a delivery"}, status=400)
        action = await self._action(delivery)
        key = str(delivery.delivery_key)
        await self._store.add_request(SERVER, delivery.address, str(action), delivery_key=key, attempt=delivery.attempt)
        return await play(request, action, lambda: self._accept(delivery))

    async def list_deliveries(self, request: web.Request) -> web.Response:
        try:
            key = UUID(request.query["delivery_key"]) if "delivery_key" in request.query else None
        except ValueError:
            return answer({"error": "delivery_key: not a UUID"}, status=400)
        address, containing = request.query.get("address"), request.query.get("containing")
        return answer(await self._store.list_mock_deliveries(address, key, containing))

    async def put_outage(self, request: web.Request) -> web.Response:
        """From now on, for so many seconds, nothing on this channel is taken, and all of it may be sent again."""
        try:
            seconds = float((await request.json())["seconds"])
        except (ValueError, KeyError, TypeError):
            return answer({"error": "seconds: must be a number"}, status=400)
        self._down_until[request.match_info["channel"]] = time.monotonic() + seconds
        return web.Response(status=204)

    async def _action(self, delivery: Delivery) -> Action:
        if time.monotonic() < self._down_until.get(delivery.channel, 0):
            return TRANSIENT
        if delivery.address.startswith("invalid"):
            return INVALID
        script = scripts.of_address(delivery.address, HTTP_WORDS)
        if script.steps:
            return script.action(await self._store.count_play(SERVER, delivery.address))
        return TRANSIENT if self._dice.random() < self._transient_rate else scripts.ACCEPT

    async def _accept(self, delivery: Delivery) -> web.Response:
        times = await self._store.add_mock_delivery(
            delivery.delivery_key, delivery.channel, delivery.address, delivery.content
        )
        return answer({"message_id": f"mock-{delivery.delivery_key}", "duplicate": times > 1})
