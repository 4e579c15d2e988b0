"""One attempt: a call to the provider that ends in an outcome, whatever the provider or its adapter does."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from services.worker.claim import Claim
from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code

log = structlog.get_logger()


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
    message_id = "".join(filter(str.isprintable, outcome.provider_message_id or ""))[:255]
    return replace(outcome, code=code, provider_message_id=message_id or None)


def _broken_off(handover: Handover, code: str) -> Outcome:
    return Outcome(Answer.UNKNOWN if handover.begun else Answer.TRANSIENT, code=code)
