"""The README's first delivery, as it stands there, in a fresh clone against its `make up`."""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.plan import PORTS
from tests.e2e.conftest import ROOT, Up, up
from tests.waiting import eventually

README = ROOT / "README.md"
SANDBOX = ROOT / "docs/sandbox.md"
SECTION = re.compile(r"^## A first delivery\n(.*?)^## ", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
LINK = re.compile(r"\]\((?!https?://)([^)#]+)\)")
PICTURE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
JAVASCRIPT = re.compile(r"^```js\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    section = SECTION.search(README.read_text())
    assert section
    return BLOCK.findall(section[1])


async def run(running: Up, script: str) -> str:
    """What a block prints where the first one has exported the key, with the ports and state of this `make up`."""
    export = blocks()[0].splitlines()[0]
    script = f"{export}\n{script}".replace(".local/", f"{running.state}/")
    for name, port in PORTS.items():
        script = script.replace(f"127.0.0.1:{port}", running.address(name))
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=running.checkout,
        env=os.environ | {"NOTIFYQUEUE_ADDRESS": running.address("scheduler")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def answers(output: str) -> Iterator[Any]:
    """JSON documents that follow one another."""
    decoder = json.JSONDecoder()
    while output := output.lstrip():
        found, end = decoder.raw_decode(output)
        yield found
        output = output[end:]


async def answer(running: Up, script: str) -> Any:
    return next(answers(await run(running, script)))


async def test_the_first_delivery_works_as_the_readme_says(clone: Path, state: Path) -> None:
    schedule, mailbox, get, webhooks = blocks()
    async with up(state, checkout=clone, command=("make", "up")) as running:
        scheduled = await answer(running, schedule)
        id_ = scheduled["notification"]["notification_id"]
        assert (await answer(running, schedule))["replayed"] is True

        (mail,) = await eventually(lambda: answer(running, mailbox), within=30)
        assert (mail["delivery_key"], mail["subject"]) == (id_, "Your order is on its way")

        async def sent() -> Any:
            notification = await answer(running, get)
            return notification if notification["status"] == "STATUS_SENT" else None

        timeline = (await eventually(sent, within=30))["timeline"]
        assert [entry["kind"] for entry in timeline] == ["KIND_ACCEPTED", "KIND_SENT"]

        (hook,) = await eventually(lambda: answer(running, webhooks), within=30)
        assert hook["verified"] is True
        assert hook["body"]["type"] == "notification.sent"
        assert hook["body"]["data"]["notification_id"] == id_
        assert hook["body"]["data"]["labels"] == {"order": "17"}

        inbox = f"http://{running.address('sandbox')}/inbox"
        assert inbox in running.page
        (rehearsal,) = BLOCK.findall(SANDBOX.read_text())
        await run(running, rehearsal)
        refused = f"curl -fsS {inbox} {inbox}/arrivals?kind=refused | tail -n 1"

        async def shown() -> Any:
            return (await answer(running, refused))["arrivals"]

        (request,) = await eventually(shown, within=30)
        assert (request["address"], request["title"]) == ("451x1+you@example.com", "451")


def test_every_promise_of_the_readme_has_the_test_that_it_names() -> None:
    promises = PROMISE.findall(README.read_text())
    assert len(promises) >= 4
    for name, file in promises:
        assert f"def {name}(" in (ROOT / file).read_text(), name


def test_the_readme_leads_nowhere_that_is_not_there() -> None:
    assert all((ROOT / path).exists() for path in LINK.findall(README.read_text()))


def test_the_node_of_the_readme_is_the_file_that_is_tested() -> None:
    (shown,) = JAVASCRIPT.findall(README.read_text())
    assert shown == (ROOT / "examples/node/readme.mjs").read_text()
    assert len(shown.strip().splitlines()) <= 13  # twelve, and the line that divides them


def test_the_picture_fits_a_terminal() -> None:
    picture = PICTURE.findall(README.read_text())[0].splitlines()
    assert len(picture) == 8
    assert max(map(len, picture)) <= 80
