"""What the day came to: counted on every side, and compared."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox.demo.day import Played
from sandbox.demo.ledgers import Ledgers

ENDS = {
    "sent": "SENT",
    "failed": "FAILED",
    "dead_lettered": "DEAD_LETTERED",
    "cancelled": "CANCELLED",
    "expired": "EXPIRED",
    "suppressed": "SUPPRESSED",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """What the database has of the day."""

    statuses: dict[str, str]
    """By notification."""
    events: Counter[str]
    """How many events each notification has."""
    taken: dict[str, str] = field(default_factory=dict)
    """Notifications by the ids under which their providers took them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    figures: dict[str, int]
    problems: list[str]

    def line(self) -> str:
        return "demo: ok " + " ".join(f"{name}={value}" for name, value in self.figures.items())


def judge(
    played: Iterable[Played], refused: dict[str, bool], rows: Rows, ledgers: Ledgers, failures: dict[str, set[int]]
) -> Verdict:
    """`failures` has for each act how often the other side failed for its addresses; an outage may add to that."""
    acts = list(played)
    accepted = {id_ for act in acts for id_ in act.ids}
    ends = Counter(rows.statuses[id_] for id_ in accepted if id_ in rows.statuses)
    delivered = {arrival.key for arrival in ledgers.arrived if arrival.key} & accepted
    reported = ledgers.events.keys() & accepted
    sent = {id_ for id_ in accepted if rows.statuses.get(id_) == "SENT"}
    lost = (sent - delivered) | (accepted - rows.statuses.keys()) | (accepted - reported)
    # By recipient, whatever its key: a copy under another key is one too many as well.
    copies = Counter(arrival.address for arrival in ledgers.arrived)
    duplicates = sum(count - 1 for found in (copies, ledgers.events) for count in found.values())
    figures = {"accepted": len(accepted)} | {name: ends[status] for name, status in ENDS.items()}
    figures |= {"webhooks": len(reported), "duplicates": duplicates, "lost": len(lost)}

    problems = not_as_told(acts)
    problems += [f"a bad {name} was not refused by its name" for name, well in refused.items() if not well]
    problems += [
        f"{act.act.title}: the other side failed {failures[act.act.name]} times, not {act.act.failures} or more"
        for act in acts
        if min(failures[act.act.name], default=0) < act.act.failures
    ]
    if unsent := delivered - sent:
        problems.append(f"{len(unsent)} reached their recipient and are not SENT")
    problems += _stray(ledgers, accepted)
    if rows.statuses.keys() != accepted:
        problems.append(f"the database has {len(rows.statuses)} of the {len(accepted)} that were accepted")
    if len(accepted) != sum(figures[name] for name in ENDS):
        problems.append("what was accepted is not what ended")
    if wrong := [id_ for id_ in accepted if rows.events[id_] != 1]:
        problems.append(f"{len(wrong)} have not exactly one event")
    if ledgers.failed_first != len(reported):
        problems.append(f"the endpoint failed first for {ledgers.failed_first} of {len(reported)} webhooks")
    if ledgers.unverified:
        problems.append(f"{ledgers.unverified} webhooks had no good signature")
    problems += [f"{name}={figures[name]}" for name in ("duplicates", "lost") if figures[name]]
    return Verdict(figures, problems)


def not_as_told(acts: Iterable[Played]) -> list[str]:
    """What ended otherwise, or has not ended, as the API says."""
    return [
        f"{act.act.title}: {_counted(act.statuses)} of {act.act.count}, not all {act.act.ends}"
        + (f"; {act.replays} replayed" if act.replays or act.act.twice else "")
        for act in acts
        if not act.as_told
    ]


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{status} {count}" for status, count in sorted(statuses.items())) or "none seen"


def _stray(ledgers: Ledgers, accepted: set[str]) -> Sequence[str]:
    """What came to somebody of this run, or of whom, that no accepted notification accounts for."""
    found = []
    if keys := sorted(arrival.key or "none" for arrival in ledgers.arrived if arrival.key not in accepted):
        found.append(f"{len(keys)} reached a recipient under a key of no notification: {', '.join(keys)}")
    addresses = Counter(key for _, key in {*ledgers.arrived})
    if spread := sorted(key for key, count in addresses.items() if key in accepted and count > 1):
        found.append(f"{len(spread)} reached more than one address: {', '.join(map(str, spread))}")
    if unknown := sorted(ledgers.events.keys() - accepted):
        found.append(f"{len(unknown)} webhooks were about no notification of the day: {', '.join(unknown)}")
    return found
