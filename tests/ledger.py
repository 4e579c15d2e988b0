"""A provider for worker processes: what the mock provider calls, with a ledger of every request that arrived."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the wire."""

    worker: str
    """Who made it, by the name in its MOCK_URL."""
    delivery_key: UUID
    address: str
    attempt: int


Hook = Callable[[Call], Awaitable[None]]


async def at_once(_: Call) -> None:
    """Nothing happens before the answer."""


class Ledger:
    """Accepts everything, under the id `m-<delivery key>`, unless a test does something before that."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[Call] = []
        self.before_answer: Hook = at_once
        self.after_answer: Callable[[Call], None] = lambda _: None

    def url(self, worker: str) -> str:
        """The MOCK_URL of this worker."""
        return f"http://127.0.0.1:{self.port}/{worker}"

    def settings(self, worker: str) -> dict[str, str]:
        return {"EMAIL_PROVIDER": "mock", "MOCK_URL": self.url(worker)}

    @property
    def requests(self) -> Counter[UUID]:
        """How often each delivery key was on the wire."""
        return Counter(call.delivery_key for call in self.calls)

    def made_by(self, worker: str) -> list[UUID]:
        return [call.delivery_key for call in self.calls if call.worker == worker]

    async def deliver(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        call = Call(request.match_info["worker"], UUID(body["delivery_key"]), body["address"], body["attempt"])
        self.calls.append(call)
        await self.before_answer(call)
        answer = web.json_response({"message_id": message_id(call.delivery_key)})
        await answer.prepare(request)
        await answer.write_eof()
        self.after_answer(call)
        return answer


def message_id(delivery_key: UUID) -> str:
    return f"m-{delivery_key}"


@asynccontextmanager
async def open_ledger() -> AsyncIterator[Ledger]:
    ledger = Ledger()
    app = web.Application()
    app.router.add_post("/{worker}/mock/deliver", ledger.deliver)
    # Whoever called may be dead, and what it called for held for ever.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ledger.port = runner.addresses[0][1]
    try:
        yield ledger
    finally:
        await runner.cleanup()
