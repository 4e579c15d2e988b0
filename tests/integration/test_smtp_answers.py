"""Each reply of the mail provider's table, said by a server: over the wire it means what its row says."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.worker.providers.smtp import Tls
from services.worker.providers.smtp_codes import Phase, judge
from tests.smtp_server import Replies, Start, deliver, starting
from tests.unit.test_smtp_codes import EACH

# What is answered in each phase, what else the server says, and what makes a provider come so far.
VERBS: dict[Phase, tuple[str, Replies, dict[str, Any]]] = {
    Phase.CONNECT: ("GREETING", {}, {}),
    Phase.TLS: ("STARTTLS", {"EHLO": "250-test\r\n250 STARTTLS"}, {"tls": Tls.STARTTLS}),
    Phase.AUTH: ("AUTH", {"EHLO": "250-test\r\n250 AUTH PLAIN"}, {"username": "user", "password": "secret"}),
    Phase.MAIL: ("MAIL", {}, {}),
    Phase.RCPT: ("RCPT", {}, {}),
    Phase.DATA: ("DATA", {}, {}),
    Phase.DOT: ("DOT", {}, {}),
}
YES = {Phase.AUTH, Phase.MAIL, Phase.RCPT}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


def said(code: int, text: str) -> str:
    *lines, last = text.split("\n")
    return "".join(f"{code}-{line}\r\n" for line in lines) + f"{code} {last}"


@pytest.mark.parametrize("phase", Phase)
async def test_each_reply_means_over_the_wire_what_its_row_says(start: Start, phase: Phase) -> None:
    verb, others, settings = VERBS[phase]
    # A yes is one, and where 250 is not the answer that was waited for it is none.
    examples = [example for example in EACH if example[0] is phase and not (phase in YES and example[1] == 250)]
    replies: list[Replies] = [{**others, verb: said(code, text)} for _, code, text, *_ in examples]
    smtp, server = await start(*replies, max_messages=1, **settings)
    for _, code, text, answer, rest in examples:
        outcome, begun = await deliver(smtp)
        assert (outcome.answer, outcome.not_before) == (answer, rest), (code, text)
        assert (outcome, begun) == (judge(phase, code, text), phase is Phase.DOT), (code, text)
    assert server.opened == len(examples)
