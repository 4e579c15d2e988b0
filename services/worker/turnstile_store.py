"""The statements of the turnstile: one method each, named like its file in sql/."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from services.worker.claim import Held, Recipient
from services.worker.turnstile import Window
from shared.database import Database, Executor, Statements, columns
from shared.mending import mend_gates

sql = Statements("services.worker")


@dataclass(frozen=True, slots=True)
class Gate:
    """When to look again for whom."""

    recipient: Recipient
    channel: str
    opens_in: timedelta
    window: Window
    """By which that was found."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is done while recipients are locked, which is until the transaction ends."""

    executor: Executor

    async def try_recipients(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Those that nobody else has. They are to be different ones, for a lock that is held is given again."""
        rows = await self.executor.fetch(sql["try_recipients"], *columns(recipients, 2))
        return sorted(Recipient(*row) for row in rows)

    async def hold_claims(self, claims: Sequence[Held]) -> list[UUID]:
        """Those that are still ours and that nobody has locked, most urgent first."""
        rows = await self.executor.fetch(sql["hold_claims"], *_fences(claims))
        return [row["id"] for row in rows]

    async def find_standing(self, claims: Sequence[Held]) -> dict[UUID, bool]:
        """Whether it is still ours; False: it was put to wait, by a transaction of ours. None of what was lost."""
        rows = await self.executor.fetch(sql["find_standing"], *_fences(claims))
        return {row["id"]: row["held"] for row in rows}

    async def read_windows(self, recipients: Sequence[Recipient]) -> dict[Recipient, tuple[Window, timedelta]]:
        """Each with how late a call may come."""
        rows = await self.executor.fetch(sql["read_windows"], *columns(recipients, 2))
        return {
            Recipient(row["tenant_id"], row["limit_key"]): (
                Window(
                    limit=row["recipient_limit"],
                    length=row["length"] or timedelta(),
                    starts=dict(zip(row["started"], row["ages"], strict=True)),
                    granted=frozenset(row["granted"]),
                    queue=row["queue"],
                    stalled=frozenset(row["stalled"]),
                ),
                row["lateness"] or timedelta.max,
            )
            for row in rows
        }

    async def call_back(self, notifications: Iterable[UUID]) -> set[UUID]:
        """Those that wait again; the others are being claimed."""
        return {row["id"] for row in await self.executor.fetch(sql["call_back"], sorted(notifications))}

    async def start_admitted(self, claims: Mapping[UUID, tuple[Recipient, Window]], lease: timedelta) -> None:
        """Held before; each takes one of its recipient's slots, if there is a limit."""
        rows = [
            (id_, recipient.tenant_id, None if window.limit is None else recipient.limit_key, window.length)
            for id_, (recipient, window) in sorted(claims.items())
        ]
        await self.executor.fetch(sql["start_admitted"], *columns(rows, 4), lease)

    async def wait_at_gates(self, claims: Mapping[UUID, Recipient]) -> None:
        """Held before."""
        rows = [(id_, claims[id_].limit_key) for id_ in sorted(claims)]
        await self.executor.fetch(sql["wait_at_gates"], *columns(rows, 2))

    async def set_gates(self, gates: Sequence[Gate]) -> None:
        rows = [
            (*gate.recipient, gate.channel, gate.opens_in, gate.window.limit, gate.window.length)
            for gate in sorted(gates, key=lambda gate: gate.recipient)
        ]
        await self.executor.fetch(sql["set_gates"], *columns(rows, 6))

    async def take_gates(self, channel: str, limit: int) -> list[Recipient]:
        return [Recipient(*row) for row in await self.executor.fetch(sql["take_gates"], channel, limit)]

    async def grant_slots(self, windows: Mapping[Recipient, Window]) -> Counter[Recipient]:
        """How many were called up."""
        rows = [(*recipient, window.free, window.limit is not None) for recipient, window in windows.items()]
        found = await self.executor.fetch(sql["grant_slots"], *columns(rows, 4))
        return Counter(Recipient(row["tenant_id"], row["limit_key"]) for row in found)

    async def remove_gates(self, recipients: Sequence[Recipient]) -> set[Recipient]:
        """Those where nobody waited."""
        return {Recipient(*row) for row in await self.executor.fetch(sql["remove_gates"], *columns(recipients, 2))}


class TurnstileStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        async with self._database.transaction() as connection:
            yield Turn(connection)

    async def read_next_gate(self, channel: str) -> float | None:
        """Seconds until one is due; negative where it is."""
        rows = await self._database.fetch(sql["read_next_gate"], channel)
        seconds: float | None = rows[0]["seconds"]
        return seconds

    async def mend_gates(self, after: Recipient) -> tuple[Recipient | None, int]:
        """The last recipient that was looked at, None where there was none; and how many gates were missing."""
        mended = await mend_gates(self._database, after)
        return Recipient(*mended.last) if mended.last else None, mended.gates

    async def look_at_gate(self, recipient: Recipient) -> None:
        await self._database.fetch(sql["look_at_gate"], *recipient)

    async def return_slot(self, claim: Held) -> None:
        await self._database.fetch(sql["return_slot"], claim.notification_id, claim.claim_token)


def _fences(claims: Sequence[Held]) -> list[list[UUID]]:
    return columns(sorted((claim.notification_id, claim.claim_token) for claim in claims), 2)
