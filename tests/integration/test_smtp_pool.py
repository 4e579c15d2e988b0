"""The mail provider's connections: kept for the next mail, and never trusted with one that they may lose."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from services.worker.providers import Answer, Handover, Message
from tests.smtp_server import CONTENT, IMPATIENT, Do, Reply, Start, deliver, starting


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.mark.parametrize("farewell", ["500 no", ("421 rude", Do.CLOSE), Do.CLOSE, Do.RESET, "250 ok"])
async def test_accepted_whatever_becomes_of_quit(start: Start, farewell: Reply) -> None:
    smtp, server = await start({"QUIT": farewell}, max_messages=1)
    outcome, _ = await deliver(smtp)
    assert outcome.answer is Answer.ACCEPTED
    await server.all_closed.wait()
    assert server.verbs["QUIT"] == 1


async def test_quit_that_is_not_answered_ends(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.worker.providers.smtp_session.LEAVE_TIMEOUT", 0.05)
    smtp, server = await start({"QUIT": Do.HANG}, max_messages=1)
    assert (await deliver(smtp))[0].answer is Answer.ACCEPTED
    await smtp.__aexit__(None, None, None)
    assert server.verbs["QUIT"] == 1


async def test_stays_connected(start: Start) -> None:
    smtp, server = await start()
    for _ in range(3):
        assert (await deliver(smtp))[0].answer is Answer.ACCEPTED
    assert (server.opened, server.verbs["DATA"], server.verbs["RSET"]) == (1, 3, 0)


async def test_resets_after_a_refusal(start: Start) -> None:
    smtp, server = await start({"RCPT": ["550 5.1.1 nobody", "250 ok"]})
    answers = [(await deliver(smtp))[0].answer for _ in range(2)]
    assert answers == [Answer.PERMANENT_ADDRESS, Answer.ACCEPTED]
    assert (server.opened, server.verbs["RSET"]) == (1, 1)


@pytest.mark.parametrize("reset", ["500 no", ("421 bye", Do.CLOSE), Do.CLOSE, "354 confused"])
async def test_replaced_when_reset_fails(start: Start, reset: Reply) -> None:
    smtp, server = await start({"RCPT": "550 5.1.1 nobody", "RSET": reset}, {})
    answers = [(await deliver(smtp))[0].answer for _ in range(2)]
    assert answers == [Answer.PERMANENT_ADDRESS, Answer.ACCEPTED]
    assert (server.opened, len(server.bodies)) == (2, 1)


async def test_closed_while_it_rested(start: Start) -> None:
    smtp, server = await start()
    await deliver(smtp)
    server.hang_up()
    await server.all_closed.wait()
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, begun) == (Answer.ACCEPTED, True)
    assert (server.opened, len(server.bodies)) == (2, 2)


@pytest.mark.parametrize("last", [Do.CLOSE, Do.RESET, Do.HANG, ("421 4.4.2 idle for too long", Do.CLOSE)])
async def test_found_dead_at_mail(start: Start, last: Reply) -> None:
    """Nothing was handed over, so a new connection may have the mail, within the same attempt."""
    smtp, server = await start({"MAIL": ["250 ok", last]}, {}, **(IMPATIENT if last is Do.HANG else {}))
    await deliver(smtp)
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, begun) == (Answer.ACCEPTED, True)
    assert (server.opened, len(server.bodies)) == (2, 2)


async def test_replaced_once_only(start: Start) -> None:
    smtp, server = await start({"MAIL": ["250 ok", Do.CLOSE]}, {"MAIL": Do.CLOSE})
    await deliver(smtp)
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "mail-closed", False)
    assert server.opened == 2


@pytest.mark.parametrize("verb", ["RCPT", "DATA", "DOT"])
async def test_never_replaced_later(start: Start, verb: str) -> None:
    first = {"DATA": "354 go"}.get(verb, "250 ok")
    smtp, server = await start({verb: [first, Do.CLOSE]}, {})
    await deliver(smtp)
    outcome, begun = await deliver(smtp)
    assert outcome.answer is (Answer.UNKNOWN if verb == "DOT" else Answer.TRANSIENT)
    assert begun == (verb == "DOT")
    assert server.opened == 1


async def test_new_connection_after_so_many_mails(start: Start) -> None:
    smtp, server = await start(max_messages=2)
    for _ in range(5):
        await deliver(smtp)
    assert (server.opened, len(server.bodies)) == (3, 5)


async def test_says_quit_after_resting_for_too_long(start: Start) -> None:
    smtp, server = await start(idle_timeout=0)
    await deliver(smtp)
    await server.all_closed.wait()
    assert server.commands[-1] == "QUIT"
    assert (await deliver(smtp))[0].answer is Answer.ACCEPTED


async def test_no_more_connections_than_allowed(start: Start) -> None:
    smtp, server = await start(max_connections=3)
    outcomes = await asyncio.gather(*(deliver(smtp) for _ in range(20)))
    assert {outcome.answer for outcome, _ in outcomes} == {Answer.ACCEPTED}
    assert (server.opened, len(server.bodies)) == (3, 20)


async def test_no_free_connection_in_time(start: Start) -> None:
    smtp, server = await start({"DOT": Do.HANG}, max_connections=1, prepare_timeout=1.0)
    holding = asyncio.create_task(deliver(smtp))
    await server.body_arrived.wait()
    outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "prepare-timeout", False)
    holding.cancel()
    await asyncio.wait([holding])
    assert server.opened == 1


async def test_cancelled_mail_is_not_completed(start: Start) -> None:
    """Its connection is closed, not kept: the next mail must not follow half a mail."""
    smtp, server = await start({"RCPT": Do.HANG}, {})
    handover = Handover()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await smtp.deliver(Message(uuid4(), 1, "anna@example.org", CONTENT), handover)
    assert not handover.begun
    assert (await deliver(smtp))[0].answer is Answer.ACCEPTED
    assert (server.opened, len(server.bodies)) == (2, 1)


async def test_a_body_the_server_does_not_read(start: Start) -> None:
    """The dot waits until the body is handed on, so a stuck body is still undelivered."""
    smtp, _ = await start({"DATA": ("354 go", Do.HANG)}, command_timeout=0.5)
    content = {"subject": "s", "text": ("x" * 70 + "\n") * 200_000}
    outcome, begun = await deliver(smtp, content=content)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, "data-timeout", False)
