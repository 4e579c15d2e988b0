"""One attempt ends in an outcome, whatever the provider does."""

import asyncio
from uuid import UUID

import pytest

from services.worker.attempt import attempt
from services.worker.claim import Claim
from services.worker.providers import Answer, Handover, Message, Outcome, safe_code
from shared.clock import tick
from tests.providers import ScriptedProvider

CLAIM = Claim(
    notification_id=UUID(int=1),
    claim_token=UUID(int=2),
    channel="EMAIL",
    number=1,
    max_attempts=5,
    at_most_once=False,
    reconciled=False,
    maybe_delivered=False,
    time_left=None,
    address="someone@example.com",
    content={},
    expiries=0,
    asked_at=tick(),
    tenant_id="default",
    limited=False,
)


class Adapter(ScriptedProvider):
    """Does what a test gives it to do."""

    def __init__(self, begins: bool, error: Exception | None = None) -> None:
        super().__init__()
        self._begins = begins
        self._error = error

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        if self._begins:
            handover.begin()
        if self._error:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(("begins", "answer"), [(False, Answer.TRANSIENT), (True, Answer.UNKNOWN)])
async def test_an_adapter_that_raises_is_unknown_only_after_the_handover(begins: bool, answer: Answer) -> None:
    outcome = await attempt(CLAIM, {}, Adapter(begins, ValueError("someone@example.com")), 10)
    assert outcome == Outcome(answer, code="adapter_error")


@pytest.mark.parametrize(("begins", "answer"), [(False, Answer.TRANSIENT), (True, Answer.UNKNOWN)])
async def test_a_deadline_is_unknown_only_after_the_handover(begins: bool, answer: Answer) -> None:
    assert await attempt(CLAIM, {}, Adapter(begins), 0.01) == Outcome(answer, code="deadline")


@pytest.mark.parametrize(
    ("said", "stored"),
    [("m-1", "m-1"), ("", None), ("a\0b\nc", "abc"), ("\0", None), ("x" * 300, "x" * 255), (None, None)],
)
async def test_a_providers_words_are_made_storable(said: str | None, stored: str | None) -> None:
    provider = ScriptedProvider()
    provider.script(CLAIM.address, Outcome(Answer.ACCEPTED, code="a b@c", provider_message_id=said))
    outcome = await attempt(CLAIM, {}, provider, 10)
    assert outcome == Outcome(Answer.ACCEPTED, code="a_b_c", provider_message_id=stored)


@pytest.mark.parametrize(
    ("code", "safe"), [(550, "550"), ("5.1.1", "5.1.1"), ("", "none"), ("é" * 80, "_"), ("x" * 80, "x" * 64)]
)
def test_a_code_carries_no_sentence(code: object, safe: str) -> None:
    assert safe_code(code) == safe
