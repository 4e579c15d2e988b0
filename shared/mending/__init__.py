"""Sets gates that are missing: every worker does so once a minute, and the doctor where it is asked to."""

from dataclasses import dataclass

from shared.database import Executor, Statements

sql = Statements("shared.mending")

BEFORE_ALL = ("", "")


@dataclass(frozen=True, slots=True)
class Mended:
    last: tuple[str, str] | None
    """Tenant and limit key of the last recipient that was looked at; None: there was none."""
    gates: int = 0
    """How many were missing, and are set."""


async def mend_gates(executor: Executor, after: tuple[str, str]) -> Mended:
    """Looks at up to 1,000 recipients for whom somebody waits, after one of them."""
    rows = await executor.fetch(sql["mend_gates"], *after)
    if not rows:
        return Mended(None)
    return Mended((rows[-1]["tenant_id"], rows[-1]["limit_key"]), sum(row["mended"] for row in rows))
