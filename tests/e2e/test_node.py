"""The Node example against `make up`: what docs/node.md says, by the very files that it shows."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
import pytest_asyncio
from standardwebhooks import Webhook

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.e2e.conftest import Up, open_folder, up
from tests.node_example import installed
from tests.waiting import eventually

# One `make up` for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHIN = 60.0
WRONG_KEY = "nq_0123456789ab_" + "c0ffee" * 10 + "c0ff"


@dataclass(frozen=True, slots=True)
class Node:
    """The example, installed in a checkout of its own, and whom it calls."""

    checkout: Path
    up: Up

    def environment(self, key: str | None = None) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NOTIFYQUEUE_")}
        return {**inherited, "NOTIFYQUEUE_API_KEY": key or str(self.up.place["key"])}

    async def __call__(
        self, script: str, *arguments: str, service: str = "scheduler", key: str | None = None
    ) -> tuple[int | None, str, str]:
        """Runs it to its end, in the checkout's root."""
        process = await asyncio.create_subprocess_exec(
            *("node", f"examples/node/{script}", *arguments),
            cwd=self.checkout,
            env={**self.environment(key), "NOTIFYQUEUE_ADDRESS": self.up.address(service)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WITHIN):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def answer(self, script: str, *arguments: str, service: str = "scheduler") -> dict[str, Any]:
        code, out, err = await self(script, *arguments, service=service)
        assert code == 0, err
        answered: dict[str, Any] = json.loads(out)
        return answered

    async def refusal(self, script: str, *arguments: str, key: str | None = None) -> dict[str, Any]:
        code, out, err = await self(script, *arguments, key=key)
        assert (code, out) == (1, "")
        refused: dict[str, Any] = json.loads(err)
        return refused


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(example: Path) -> AsyncIterator[Node]:
    with open_folder() as state:
        async with up(state) as running:
            yield Node(example, running)


@asynccontextmanager
async def endpoint(node: Node, port: int, secret: str) -> AsyncIterator[Path]:
    """`webhook.mjs` on this port; answers the file of the lines that it prints."""
    printed = node.checkout / f"events-{port}"
    with printed.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("node", "examples/node/webhook.mjs"),
            cwd=node.checkout,
            env={**node.environment(), "NOTIFYQUEUE_WEBHOOK_SECRET": secret, "PORT": str(port)},
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
        )
    try:
        assert process.stderr
        async with asyncio.timeout(WITHIN):
            assert await process.stderr.readline() == f"port {port}\n".encode()
        yield printed
    finally:
        process.kill()
        await process.wait()


def tomorrow() -> str:
    """As JavaScript writes it."""
    return (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.123Z")


def events(printed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.read_text().splitlines()]


async def test_a_repetition_with_the_same_key_is_the_same_notification(node: Node) -> None:
    first = await node.answer("schedule.mjs", "order-1", "you@example.com")
    again = await node.answer("schedule.mjs", "order-1", "you@example.com")
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["notification_id"] == again["notification_id"]


async def test_what_is_due_later_is_cancelled_by_its_key_and_again_with_the_same_answer(node: Node) -> None:
    scheduled = await node.answer("schedule.mjs", "order-2", "you@example.com", tomorrow())
    assert scheduled["status"] == "STATUS_PENDING"
    cancelled = await node.answer("cancel.mjs", "order-2")
    assert cancelled == {"notification_id": scheduled["notification_id"], "status": "STATUS_CANCELLED"}
    assert await node.answer("cancel.mjs", "order-2") == cancelled


async def test_the_time_that_javascript_means_is_the_time_that_is_stored(node: Node) -> None:
    time = tomorrow()
    scheduled = await node.answer("schedule.mjs", "order-3", "you@example.com", time)
    async with grpc.aio.insecure_channel(node.up.address("scheduler")) as channel:
        stored = await scheduler_pb2_grpc.SchedulerStub(channel).GetNotification(
            scheduler_pb2.GetNotificationRequest(notification_id=scheduled["notification_id"]),
            metadata=node.up.credentials,
        )
    assert stored.notification.due_time.ToJsonString() == time
    assert stored.notification.priority == notification_pb2.PRIORITY_HIGH


async def test_a_refusal_has_its_reason_and_the_field(node: Node) -> None:
    refused = await node.refusal("schedule.mjs", "order-4", "nowhere")
    assert (refused["code"], refused["reason"]) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
    assert [violation["field"] for violation in refused["fields"]] == ["address"]


async def test_a_time_that_is_none_is_one_line(node: Node) -> None:
    refused = await node.refusal("schedule.mjs", "order-4", "you@example.com", "noon")
    assert list(refused) == ["message"]
    assert refused["message"].startswith("not a time")


async def test_a_key_that_is_not_good_is_refused_as_such(node: Node) -> None:
    refused = await node.refusal("schedule.mjs", "order-5", "you@example.com", key=WRONG_KEY)
    assert (refused["code"], refused["reason"]) == ("UNAUTHENTICATED", "CREDENTIAL_INVALID")


async def test_the_endpoint_verifies_what_the_dispatcher_signs_and_nothing_else(
    node: Node, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/events"
    made = await node.answer("endpoint.mjs", url, service="dispatcher")
    async with endpoint(node, unused_tcp_port, made["secret"]) as printed:
        scheduled = await node.answer("schedule.mjs", "order-6", "you@example.com")
        await eventually(lambda: bool(events(printed)), within=WITHIN)
        (event,) = events(printed)
        assert (event["type"], event["notification_id"]) == ("notification.sent", scheduled["notification_id"])
        assert event["labels"] == {"order": "17"}
        await refuses_what_was_tampered_with(url, made["secret"], printed)


async def refuses_what_was_tampered_with(url: str, secret: str, printed: Path) -> None:
    signer, body, now = Webhook(secret), '{"type": "t", "data": {"notification_id": "n"}}', datetime.now(UTC)

    async def post(id_: str, sent: str, *, at: datetime = now, entry: str = "{}") -> int:
        headers = {
            "webhook-id": id_,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": entry.format(signer.sign("e1", at, body)),
        }
        async with aiohttp.ClientSession() as session, session.post(url, data=sent, headers=headers) as answer:
            return answer.status

    before = len(events(printed))
    assert await post("e1", body.replace('"n"', '"m"')) == 401
    assert await post("e2", body) == 401
    assert await post("e1", body, at=now - timedelta(minutes=6)) == 401
    assert await post("e1", body, entry="v1,c2hvcnQ=") == 401
    assert await post("e1", body, entry="") == 401
    assert len(events(printed)) == before
    assert await post("e1", body, entry="v1,c2hvcnQ= {}") == 204  # while a secret is rotated there are two
    assert await post("e1", body) == 204  # the same again
    await eventually(lambda: len(events(printed)) == before + 1)


TRAPS = """
import { connect } from './examples/node/client.mjs';

const [address, key] = process.argv.slice(2);
const scheduler = connect('Scheduler', address, key);
const request = { address: 'you@example.com', email: { subject: 'Hello', text: 'Hello' } };
const told = {};
const schedule = async (trap, changed) => {
  try {
    const answer = await scheduler.ScheduleNotification({ ...request, idempotency_key: trap, ...changed });
    told[trap] = answer.notification;
  } catch ({ code, reason, fields }) {
    told[trap] = [reason || code, ...fields.map(({ field }) => field)];
  }
};
await schedule('date', { due_time: new Date(Date.now() + 60_000) });
await schedule('camel', { idempotency_key: undefined, idempotencyKey: 'camel' });
await schedule('enum', { priority: 'HIGH' });
await schedule('duration', { delay: 60 });
const seconds = Math.floor(Date.now() / 1000) + 3600;
await schedule('now', { due_time: { seconds } });
await schedule('now', { due_time: { seconds: seconds + 1 } });
await schedule('oneof', { due_time: { seconds }, delay: { seconds: 0 } });
scheduler.close();
console.log(JSON.stringify(told));
"""


async def test_the_traps_are_as_the_page_says(node: Node) -> None:
    (node.checkout / "traps.mjs").write_text(TRAPS)
    told = await node.answer("../../traps.mjs", node.up.address("scheduler"), str(node.up.place["key"]))
    assert told["date"] == ["REQUEST_INVALID", "due_time"]
    assert told["camel"] == ["REQUEST_INVALID", "idempotency_key"]
    assert (told["enum"]["priority"], told["enum"]["revision"]) == ("PRIORITY_NORMAL", "1")
    assert told["enum"]["expire_time"] is None
    assert told["duration"] == ["INTERNAL"]
    assert told["now"] == ["IDEMPOTENCY_KEY_REUSED"]
    assert (
        told["oneof"]["due_time"] == told["oneof"]["create_time"]
    )  # the later field, and the other one without a word


async def test_nobody_there_is_unavailable_without_a_reason(node: Node, unused_tcp_port: int) -> None:
    (node.checkout / "nobody.mjs").write_text(
        "import { run } from './examples/node/run.mjs';\n"
        f"process.env.NOTIFYQUEUE_ADDRESS = '127.0.0.1:{unused_tcp_port}';\n"
        "await run('Scheduler', '', (scheduler) => scheduler.GetQueueStats({}));\n"
    )
    refused = await node.refusal("../../nobody.mjs")
    assert (refused["code"], refused["reason"], refused["fields"]) == ("UNAVAILABLE", "", [])


async def test_the_twelve_lines_of_the_readme_work(node: Node, unused_tcp_port: int) -> None:
    script = (node.checkout / "examples/node/readme.mjs").read_text()
    assert len(script.splitlines()) <= 12
    (node.checkout / "examples/node/readme.mjs").write_text(
        script.replace("127.0.0.1:50051", node.up.address("scheduler"))
    )
    code, out, err = await node("readme.mjs")
    assert (code, err) == (0, "")
    async with grpc.aio.insecure_channel(node.up.address("scheduler")) as channel:
        stored = await scheduler_pb2_grpc.SchedulerStub(channel).GetNotification(
            scheduler_pb2.GetNotificationRequest(notification_id=out.strip()), metadata=node.up.credentials
        )
    assert stored.notification.idempotency_key == "order-18-shipped"
    _, refused, _ = await node("readme.mjs", key=WRONG_KEY)
    assert refused == "CREDENTIAL_INVALID\n"
    (node.checkout / "examples/node/readme.mjs").write_text(script.replace(":50051", f":{unused_tcp_port}"))
    _, nobody, _ = await node("readme.mjs")
    assert str(unused_tcp_port) in nobody  # gRPC's own words, where no server gave a reason


async def test_the_lock_file_names_no_place(example: Path) -> None:
    locked = json.loads((example / "examples/node/package-lock.json").read_text())
    packages = [package for name, package in locked["packages"].items() if name]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)
