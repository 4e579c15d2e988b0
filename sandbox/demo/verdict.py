"""What the day came to: counted on every side, and compared."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sandbox.demo.day import Played
from sandbox.demo.ledgers import Ledgers
from sandbox.demo.story import IN_WINDOW, WINDOW

STRETCH = WINDOW
"""A limit counts starts. On a busy machine a first mail may take so long to arrive, and the last one no time."""

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
    starts: dict[str, datetime] = field(default_factory=dict)
    """When each was last started, where its tenant limits what a recipient gets."""


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
    wanted = Counter(address for act in acts if act.act.ends == "SENT" for address in act.addresses)
    duplicates = sum(max(count - max(wanted[address], 1), 0) for address, count in copies.items())
    duplicates += sum(count - 1 for count in ledgers.events.values())
    figures = {"accepted": len(accepted)} | {name: ends[status] for name, status in ENDS.items()}
    figures |= {"webhooks": len(reported), "duplicates": duplicates, "lost": len(lost)}

    problems = not_as_told(acts)
    problems += [f"{title}: not refused as it must be" for title, well in refused.items() if not well]
    problems += [problem for act in acts for problem in (*_misread(act, ledgers), *_crowded(act, rows, ledgers))]
    problems += [problem for act in acts for problem in _asked(act, ledgers, copies)]
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


def _misread(played: Played, ledgers: Ledgers) -> Sequence[str]:
    if (says := played.act.says) is None:
        return []
    expected = [[says(number)] for number in range(played.act.count)]
    found = [list(ledgers.read.get(address, ())) for address in played.addresses]
    return [] if found == expected else [f"{played.act.title}: it does not say everywhere what it must"]


def _crowded(played: Played, rows: Rows, ledgers: Ledgers) -> Sequence[str]:
    """By when each was started, to the microsecond; and by when they came, as far as that can tell."""
    act = played.act
    if not act.spaced:
        return []
    starts = sorted(rows.starts[id_] for id_ in played.ids if id_ in rows.starts)
    closest = min((later - first for first, later in zip(starts, starts[IN_WINDOW:], strict=False)), default=None)
    times = sorted(time for address in {*played.addresses} for time in ledgers.times.get(address, ()))
    least = WINDOW * (act.count // IN_WINDOW - 1) - STRETCH
    if not len(starts) == len(times) == act.count:
        return [f"{act.title}: {len(starts)} were started, {len(times)} came"]
    if closest is not None and closest < WINDOW:
        return [f"{act.title}: {IN_WINDOW + 1} were started within {closest}"]
    return [f"{act.title}: all came within {times[-1] - times[0]}"] if times[-1] - times[0] < least else []


def _asked(played: Played, ledgers: Ledgers, arrived: Counter[str]) -> Sequence[str]:
    """Whatever the other side was asked for these addresses has arrived, and these have not."""
    if not played.act.silent:
        return []
    more = sum(ledgers.asked.get(address, -1) != arrived[address] for address in {*played.addresses})
    return [f"{played.act.title}: the other side was asked for {more} of them"] if more else []


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
