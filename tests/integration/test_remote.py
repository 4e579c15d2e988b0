"""A provider behind the contract: what its answers mean, and what the end of a call means without one."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from notifyqueue.v1 import notification_pb2
from notifyqueue.v1.provider_pb2 import DeliverResponse
from services.worker.providers import Answer, Outcome
from services.worker.providers.answers import RATE_REST
from services.worker.providers.remote import MAX_ANSWER, Remote
from services.worker.providers.remote_codes import ANSWERS, TABLE
from services.worker.providers.remote_settings import RemoteSettings
from tests.certificates import Authority
from tests.pretended import deliver
from tests.raw_http import Do, raw_server
from tests.remote_server import remote, remote_server
from tests.waiting import eventually

ACCEPTED, MESSAGE, ADDRESS, MISCONFIGURED, THROTTLED, TRANSIENT, UNKNOWN = Answer
CONTENT = {"text": "Hallo ☃"}
NUMBER = "+447700900123"
YES = DeliverResponse(outcome=DeliverResponse.OUTCOME_ACCEPTED, provider_message_id="m-1")
SECOND = timedelta(seconds=1)

CHANNELS = [
    ("EMAIL", "anna@example.org", {"subject": "s", "html": "<p>", "headers": {"X-Note": "n"}}),
    ("SMS", NUMBER, CONTENT),
    ("PUSH", "token", {"title": "t", "data": {"screen": "parcel"}}),
]


@pytest.mark.parametrize(("channel", "address", "content"), CHANNELS)
async def test_is_told_what_and_whom_and_which_attempt(channel: str, address: str, content: dict[str, Any]) -> None:
    key = uuid4()
    async with remote_server(YES) as server, remote(server.address, channel, token="t0k") as provider:
        outcome, begun = await deliver(provider, address, content, key, attempt=3)
    assert (outcome, begun) == (Outcome(ACCEPTED, "ACCEPTED", "m-1"), True)
    (asked,) = server.asked
    assert (asked.delivery_key, asked.attempt, asked.address) == (str(key), 3, address)
    assert asked.channel == notification_pb2.Channel.Value(f"CHANNEL_{channel}")
    assert asked.WhichOneof("content") == channel.lower()
    part = getattr(asked, channel.lower())
    for name, value in content.items():
        found = getattr(part, name)
        assert (dict(found) if isinstance(value, dict) else found) == value
    assert server.metadata[0]["authorization"] == "Bearer t0k"


@pytest.mark.parametrize("name", ["OUTCOME_UNSPECIFIED", *ANSWERS])
async def test_each_outcome(name: str) -> None:
    said = DeliverResponse(outcome=DeliverResponse.Outcome.Value(name))
    async with remote_server(said) as server, remote(server.address) as provider:
        outcome, _ = await deliver(provider, NUMBER, CONTENT)
    assert outcome.answer is ANSWERS.get(name, UNKNOWN)
    assert outcome.opted_out == (name == "OUTCOME_OPTED_OUT")
    assert outcome.not_before == (RATE_REST if outcome.answer is THROTTLED else timedelta())
    assert len(server.asked) == 1


async def test_each_of_our_answers_can_be_given() -> None:
    assert set(ANSWERS.values()) == set(Answer)
    assert set(ANSWERS) == set(DeliverResponse.Outcome.keys()) - {"OUTCOME_UNSPECIFIED"}


async def test_an_outcome_of_a_later_version_is_unknown() -> None:
    later = DeliverResponse.FromString(b"\x08\x63")  # outcome: 99
    async with remote_server(later) as server, remote(server.address) as provider:
        outcome, _ = await deliver(provider, NUMBER, CONTENT)
    assert outcome.answer is UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "rest"),
    [(7, 7 * SECOND), (-7, 0 * SECOND), (10**11, timedelta(days=1))],
)
async def test_how_long_it_asks_to_wait_is_believed_within_bounds(seconds: int, rest: timedelta) -> None:
    said = DeliverResponse(
        outcome=DeliverResponse.OUTCOME_TRANSIENT, code="not now, mk", retry_delay=Duration(seconds=seconds)
    )
    async with remote_server(said) as server, remote(server.address) as provider:
        outcome, _ = await deliver(provider, NUMBER, CONTENT)
    assert outcome == Outcome(TRANSIENT, "not_now_mk", not_before=rest)


STATUSES = [
    ("UNAUTHENTICATED", MISCONFIGURED),
    ("PERMISSION_DENIED", MISCONFIGURED),
    ("UNIMPLEMENTED", MISCONFIGURED),
    ("FAILED_PRECONDITION", MISCONFIGURED),
    ("INVALID_ARGUMENT", MESSAGE),
    ("OUT_OF_RANGE", MESSAGE),
    ("RESOURCE_EXHAUSTED", THROTTLED),
    ("UNAVAILABLE", UNKNOWN),
    ("DEADLINE_EXCEEDED", UNKNOWN),
    ("CANCELLED", UNKNOWN),
    ("INTERNAL", UNKNOWN),
    ("ABORTED", UNKNOWN),
    ("DATA_LOSS", UNKNOWN),
    ("UNKNOWN", UNKNOWN),
    ("NOT_FOUND", UNKNOWN),
    ("ALREADY_EXISTS", UNKNOWN),
]


@pytest.mark.parametrize(("status", "answer"), STATUSES)
async def test_each_status(status: str, answer: Answer) -> None:
    async with remote_server(grpc.StatusCode[status]) as server, remote(server.address) as provider:
        outcome, begun = await deliver(provider, NUMBER, CONTENT)
    assert (outcome.answer, outcome.code, begun) == (answer, f"rpc.{status}", True)
    assert len(server.asked) == 1


async def test_every_status_but_ok_is_one_of_them_and_each_row_decides_one() -> None:
    assert {status for status, _ in STATUSES} == {status.name for status in grpc.StatusCode} - {"OK"}
    decided = {next(row for row in TABLE if row.fits(status, "", "")) for status, _ in STATUSES}
    assert set(TABLE) - decided == {row for row in TABLE if row.words}  # which the next test has


async def test_a_yes_that_is_too_large_may_be_one() -> None:
    huge = DeliverResponse(outcome=DeliverResponse.OUTCOME_ACCEPTED, code="x" * 2 * MAX_ANSWER)
    async with remote_server(huge) as server, remote(server.address) as provider:
        outcome, _ = await deliver(provider, NUMBER, CONTENT)
    assert (outcome.answer, outcome.code) == (UNKNOWN, "rpc.RESOURCE_EXHAUSTED")


async def test_no_answer_in_time_may_be_one() -> None:
    async with remote_server(None) as server, remote(server.address, timeout=0.5) as provider:
        outcome, begun = await deliver(provider, NUMBER, CONTENT)
        assert (outcome.answer, outcome.code, begun) == (UNKNOWN, "rpc.DEADLINE_EXCEEDED", True)
        assert len(server.asked) == 1


async def test_a_server_that_leaves_meanwhile_may_have_taken_it() -> None:
    async with remote_server(YES) as server, remote(server.address) as provider:
        assert (await deliver(provider, NUMBER, CONTENT))[0].answer is ACCEPTED
        server.says = None
        call = asyncio.create_task(deliver(provider, NUMBER, CONTENT))
        await eventually(lambda: len(server.asked) == 2)
        await server.leave()
        assert (await call)[0].answer is UNKNOWN


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with remote(f"127.0.0.1:{unused_tcp_port}") as provider:
        for _ in range(2):
            outcome, begun = await deliver(provider, NUMBER, CONTENT)
            assert (outcome, begun) == (Outcome(TRANSIENT, "connect-failed"), False)


async def test_what_listens_and_says_nothing_has_got_nothing() -> None:
    async with raw_server(Do.HANG) as server:
        settings = RemoteSettings(address=server.url.removeprefix("http://"), tls=False, connect_timeout=0.5)
        async with Remote(settings, "SMS") as provider:
            outcome, begun = await deliver(provider, NUMBER, CONTENT)
    assert (outcome.answer, begun) == (TRANSIENT, False)


async def test_a_server_that_comes_back_is_found(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    async with remote(address) as provider:
        assert (await deliver(provider, NUMBER, CONTENT))[0].answer is TRANSIENT
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_insecure_port(address)
        await server.start()

        async def answered() -> bool:
            return (await deliver(provider, NUMBER, CONTENT))[0].code == "rpc.UNIMPLEMENTED"

        await eventually(answered)
        await server.stop(0)


async def test_only_a_certificate_of_the_named_authority_is_spoken_to(tmp_path: Path) -> None:
    authority, other = Authority(), Authority()
    pair = authority.issue("provider")
    (tmp_path / "good.pem").write_bytes(authority.pem)
    (tmp_path / "bad.pem").write_bytes(other.pem)
    async with remote_server(YES, grpc.ssl_server_credentials([(pair.key, pair.certificate)])) as server:
        for name, answer in (("good.pem", ACCEPTED), ("bad.pem", TRANSIENT)):
            settings = RemoteSettings(address=server.address, ca_file=tmp_path / name, timeout=30.0)
            async with Remote(settings, "SMS") as provider:
                outcome, begun = await deliver(provider, NUMBER, CONTENT)
            assert (outcome.answer, begun) == (answer, answer is ACCEPTED)
        assert len(server.asked) == 1


@pytest.mark.parametrize("content", [{"text": 1}, {"unheard": "of"}, {"text": "\ud800"}])
async def test_what_is_no_content_is_not_sent(content: dict[str, object]) -> None:
    async with remote_server(YES) as server, remote(server.address) as provider:
        outcome, begun = await deliver(provider, NUMBER, content)
        assert (outcome.answer, begun, server.asked) == (MESSAGE, False, [])


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("address", {"address": "mk-host"}),
        ("address", {"address": "unix:/mk-host"}),
        ("address", {"address": "dns:///mk-host:1"}),
        ("token", {"token": "mk token"}),
        ("tls", {"address": "mk-host:1", "tls": False, "token": "mk-token"}),
    ],
)
async def test_settings_that_cannot_work_are_named_without_their_value(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        RemoteSettings(**{"address": "127.0.0.1:1", **changes})
    assert "mk" not in str(refused.value)


async def test_no_secret_is_shown() -> None:
    assert "mk-" not in repr(RemoteSettings(address="127.0.0.1:1", token="mk-token"))
