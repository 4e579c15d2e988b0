"""Mail over SMTP: one recipient per mail, one mail per attempt, and no doubt about what a lost connection means."""

import asyncio
from typing import Self

import structlog

from services.worker import spans
from services.worker.providers import Answer, Handover, Message, Outcome, Provider
from services.worker.providers.mail import Mail, compose
from services.worker.providers.smtp_codes import Phase
from services.worker.providers.smtp_pool import Pool
from services.worker.providers.smtp_session import Session, Stopped
from services.worker.providers.smtp_settings import SmtpSettings, Tls

__all__ = ["Smtp", "SmtpSettings", "Tls"]

log = structlog.get_logger()


class Smtp(Provider):
    """SMTP knows no idempotency key: an attempt that ended after the final dot without an answer may have been
    delivered, and a further one may double it. Everything before the final dot is safe to repeat.
    """

    name = "smtp"

    def __init__(self, settings: SmtpSettings) -> None:
        self._settings = settings
        self._pool = Pool(settings)

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.__aexit__()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            mail = compose(message, self._settings.sender)
        except Exception as error:
            log.warning("smtp.message_malformed", notification_id=str(message.delivery_key), exc_info=error)
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        with spans.call(spans.smtp(self._settings.host, self._settings.port)) as span:
            outcome = await self._attempt(mail, handover)
            spans.answered(span, outcome, self.name)
        return outcome

    async def _attempt(self, mail: Mail, handover: Handover) -> Outcome:
        try:
            return await self._send(mail, handover)
        except Stopped as stopped:
            return stopped.outcome

    async def _send(self, mail: Mail, handover: Handover) -> Outcome:
        try:
            async with asyncio.timeout(self._settings.prepare_timeout) as preparing, self._pool.slots:
                if resting := self._pool.reuse():
                    try:
                        return await self._converse(resting, mail, handover, preparing)
                    except Stopped as stopped:
                        if stopped.alive or stopped.phase is not Phase.MAIL:
                            raise
                    # It was closed while it rested. The server has seen nothing of this mail, so a new connection
                    # may have it: this is still its first and only request.
                    log.debug("smtp.connection_replaced")
                return await self._converse(await self._pool.open(), mail, handover, preparing)
        except TimeoutError:
            return Outcome(Answer.TRANSIENT, "prepare-timeout")

    async def _converse(self, session: Session, mail: Mail, handover: Handover, preparing: asyncio.Timeout) -> Outcome:
        with self._pool.keeping(session):
            await session.offer(mail)
            preparing.reschedule(None)  # the answer has a limit of its own
            return await session.finish(handover)
