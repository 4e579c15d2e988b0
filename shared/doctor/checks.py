"""What is looked for, each with what it means and what to do about it; docs/operations.md says more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from shared.doctor.findings import Check, Severity

ERROR, WARNING = Severity.ERROR, Severity.WARNING


@dataclass(frozen=True, slots=True)
class Bounds:
    """From when on something is a finding, by the database's clock. The first three are as the workers' settings."""

    lease: timedelta = timedelta(seconds=60)
    retention: timedelta = timedelta(days=30)
    content_retention: timedelta = timedelta(days=7)
    soon: timedelta = timedelta(minutes=1)
    """What a restart of a process may take."""
    late: timedelta = timedelta(minutes=5)
    long: timedelta = timedelta(minutes=15)
    pause: timedelta = timedelta(hours=1)
    sweep: timedelta = timedelta(hours=30)
    """Sweeps of retention begin again once a day."""
    transactions: int = 1_000_000
    dead_rows: int = 500_000

    @property
    def recent(self) -> timedelta:
        """What ended since has not met retention yet."""
        return min(timedelta(days=1), self.retention or timedelta(days=1))


CHECKS = (
    Check(
        "stranded_lanes",
        ERROR,
        "Notifications are due, and no worker that lives serves their lane.",
        "Start a worker that serves it, or find out why the last one stopped.",
    ),
    Check(
        "lagging_lanes",
        WARNING,
        "Notifications are due for long, although workers serve their lane and nothing stops it.",
        "Look for errors in the workers' logs; if there are none, add workers or raise their concurrency.",
    ),
    Check(
        "expired_leases",
        ERROR,
        "Claims of dead workers are not taken back: no worker sweeps.",
        "Start a worker; if one runs, look for job.unrecoverable and failing turns of recovery in its log.",
    ),
    Check(
        "ends_without_event",
        ERROR,
        "Of the 5,000 accepted last, these ended within a day, and nobody will be told: no event of it was written.",
        "Look at triggers_off, then at who wrote to the tables by hand; no event is made up afterwards.",
    ),
    Check(
        "triggers_off",
        ERROR,
        "A trigger does not fire, so ends have no event, or are not counted.",
        "Enable it, as the owner: ALTER TABLE ... ENABLE TRIGGER; where it is missing, restore the schema.",
    ),
    Check(
        "events_unassigned",
        ERROR,
        "Events wait for a dispatcher, so no webhook goes out, and retention keeps what they are about.",
        "Start a dispatcher, or look for errors in its log; it is needed also where nobody has an endpoint.",
    ),
    Check(
        "deliveries_overdue",
        WARNING,
        "Webhooks are due for long: these endpoints are slow, or no dispatcher serves them.",
        "Look at the dispatchers' logs for these endpoints.",
    ),
    Check(
        "gates_unopened",
        WARNING,
        "Recipients have a free slot, somebody waits for it, and no worker calls anybody up.",
        "Start a worker that serves the lane; if one runs, look for failing turns of gates in its log.",
    ),
    Check(
        "gates_without_waiters",
        WARNING,
        "Gates at which nobody waits are not cleared away, which whoever opens them would do.",
        "Start a worker that serves the lane; nothing is lost meanwhile.",
    ),
    Check(
        "waiters_without_gate",
        ERROR,
        "Notifications wait at no gate, so nobody would ever call them up; no statement leaves that behind.",
        "Run the doctor with --repair, or start a worker, which sets the gate within two minutes; then report it.",
    ),
    Check(
        "crash_suspects",
        WARNING,
        "Workers were lost twice while they held these, which may be what kills them; they run one at a time.",
        "Look at how those workers ended; cancel what kills them.",
    ),
    Check(
        "paused_lanes",
        WARNING,
        "Somebody paused the lane long ago, and nothing in it is sent.",
        "Ask whoever paused it (notifyqueue lanes has the reason), then resume it.",
    ),
    Check(
        "open_breakers",
        ERROR,
        "The lane's provider fails whatever it is sent; it is probed, and closes the breaker by itself when it heals.",
        "See the cause: credentials and account are yours to mend, an outage is the provider's.",
    ),
    Check(
        "held_lanes",
        WARNING,
        "The lane's provider asked for a long rest, and nothing in it is sent.",
        "Look at your quota with the provider; resuming the lane ends the hold.",
    ),
    Check(
        "retention_lag",
        WARNING,
        "Retention has left standing what was to go long ago.",
        "Look for retention.failed in the workers' logs; if no worker runs, start one.",
    ),
    Check(
        "held_snapshots",
        WARNING,
        "Something has held a snapshot for long, so vacuum can remove nothing since and claims get slower.",
        "End the transaction (pg_terminate_backend), or drop the slot or prepared transaction that nobody uses.",
    ),
    Check(
        "vacuum_behind",
        WARNING,
        "Autovacuum does not keep up with the table, so claims get slower.",
        "Switch it on, or give it more workers; look at held_snapshots first.",
    ),
)
SCHEMA = Check(
    "schema",
    ERROR,
    "The schema is not the one that this version's files make.",
    "Run python -m shared.admin migrate of the version that the services have.",
)
LOGINS = Check(
    "logins",
    ERROR,
    "A service's login is missing, or lacks what its statements need.",
    "Run python -m shared.admin roles again, which sets grants and settings anew.",
)
LOGINS_DIFFER = Check(
    "logins_differ",
    WARNING,
    "A service's login may do more than it needs, or has other settings than ours.",
    "Run python -m shared.admin roles again, which sets grants and settings anew.",
)
UNMADE = Check(
    "unmade",
    ERROR,
    "This check could not be made.",
    "Look at the database first: it refused, or took longer than 10 s.",
)

Args = Callable[[Bounds], Sequence[object]]

ARGS: Mapping[str, Args] = {
    "stranded_lanes": lambda bounds: [bounds.soon],
    "lagging_lanes": lambda bounds: [bounds.long],
    "expired_leases": lambda bounds: [bounds.lease],
    "ends_without_event": lambda bounds: [bounds.recent],
    "events_unassigned": lambda bounds: [bounds.late],
    "deliveries_overdue": lambda bounds: [bounds.long],
    "gates_unopened": lambda bounds: [bounds.late],
    "gates_without_waiters": lambda bounds: [bounds.late],
    "paused_lanes": lambda bounds: [bounds.pause],
    "open_breakers": lambda bounds: [bounds.late],
    "held_lanes": lambda bounds: [bounds.long],
    "retention_lag": lambda bounds: [bounds.retention, bounds.content_retention, bounds.sweep],
    "held_snapshots": lambda bounds: [bounds.long, bounds.transactions],
    "vacuum_behind": lambda bounds: [bounds.long, bounds.dead_rows],
}
"""Of those that take any."""
