"""One attempt: a call to the provider that ends in an outcome, whatever the provider or its adapter does."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from services.worker.claim import Claim
from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code

log = structlog.get_logger()

MAX_MESSAGE_ID = 255


async def attempt(claim: Claim, content: Mapping[str, object], provider: Provider, deadline: float) -> Outcome:
    """Calls the provider once, for at most `deadline` seconds. Raises nothing but CancelledError."""
    message = Message(claim.notification_id, claim.number, claim.address, content)
    handover = Handover()
    try:
        async with asyncio.timeout(deadline):
            return _storable(await provider.deliver(message, handover))
    except TimeoutError:
        return _broken_off(handover, "deadline")
    except Exception as error:
        log.error("provider.failed", notification_id=str(claim.notification_id), exc_info=error)
        return _broken_off(handover, "adapter_error")


def _storable(outcome: Outcome) -> Outcome:
    """An outcome whose texts the database takes: a record must not fail for a provider's words."""
    code = None if outcome.code is None else safe_code(outcome.code)
    message_id = outcome.provider_message_id
    if message_id is not None and not (message_id.isprintable() and 0 < len(message_id) <= MAX_MESSAGE_ID):
        message_id = "".join(filter(str.isprintable, message_id))[:MAX_MESSAGE_ID] or None
    if (code, message_id) == (outcome.code, outcome.provider_message_id):
        return outcome
    return replace(outcome, code=code, provider_message_id=message_id)


def _broken_off(handover: Handover, code: str) -> Outcome:
    return Outcome(Answer.UNKNOWN if handover.begun else Answer.TRANSIENT, code=code)
