"""The Node example of a Provider service, called by a worker: what docs/providers.md says of it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from services.worker.providers import Answer, Outcome
from tests.node_example import installed
from tests.pretended import deliver
from tests.remote_server import remote

WITHIN = 60.0
NUMBER = "+447700900123"
CONTENT = {"text": "Hallo ☃"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory)


@asynccontextmanager
async def provider_of(checkout: Path, token: str = "") -> AsyncIterator[tuple[str, Path]]:
    """Its address, and the file of the lines that it prints."""
    printed = checkout / f"printed-{uuid4().hex}"
    with printed.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("node", "examples/node/provider.mjs"),
            cwd=checkout,
            env=os.environ | {"PORT": "0", "PROVIDER_TOKEN": token},
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
        )
    try:
        assert process.stderr
        async with asyncio.timeout(WITHIN):
            said = await process.stderr.readline()
        assert said.startswith(b"port "), said
        yield f"127.0.0.1:{int(said[5:])}", printed
    finally:
        process.terminate()
        await process.wait()


def lines(printed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.read_text().splitlines()]


async def test_takes_each_delivery_key_once_however_often_it_is_asked(example: Path) -> None:
    key = uuid4()
    async with provider_of(example) as (address, printed), remote(address) as provider:
        outcomes = [(await deliver(provider, NUMBER, CONTENT, key, attempt))[0] for attempt in (1, 2, 3)]
        assert outcomes == [Outcome(Answer.ACCEPTED, "ACCEPTED", "example-1")] * 3
        (line,) = lines(printed)
    assert (line["key"], line["attempt"], line["address"], line["text"]) == (str(key), 1, NUMBER, CONTENT["text"])


async def test_says_no_in_answers(example: Path) -> None:
    async with provider_of(example) as (address, printed):
        async with remote(address) as provider:
            nowhere, _ = await deliver(provider, "nowhere", CONTENT)
        async with remote(address, "EMAIL") as provider:
            mail, _ = await deliver(provider, "anna@example.org", {"subject": "s", "text": "t"})
        assert lines(printed) == []
    assert nowhere == Outcome(Answer.PERMANENT_ADDRESS, "no-number")
    assert mail == Outcome(Answer.MISCONFIGURED, "sms-only")


async def test_a_wrong_token_is_ours_to_mend(example: Path) -> None:
    async with provider_of(example, "right") as (address, printed):
        for token, answer in (("right", Answer.ACCEPTED), ("wrong", Answer.MISCONFIGURED), ("", Answer.MISCONFIGURED)):
            async with remote(address, token=token) as provider:
                outcome, _ = await deliver(provider, NUMBER, CONTENT)
            assert outcome.answer is answer
        assert len(lines(printed)) == 1
