"""What the doctor finds, and how it says so."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Severity(StrEnum):
    WARNING = "WARNING"
    """Something stands still or lags, and may be meant so."""
    ERROR = "ERROR"
    """Something that is promised does not happen, and will not by itself."""


# Not 1 and 2, by which the commands say that they could not be carried out, and that they were mistyped.
EXIT_CODES = {Severity.WARNING: 3, Severity.ERROR: 4}


@dataclass(frozen=True, slots=True)
class Check:
    """Named like its statement in sql/, where it has one."""

    name: str
    severity: Severity
    means: str
    do: str


@dataclass(frozen=True, slots=True)
class Finding:
    check: Check
    count: int
    at_least: bool = False
    subject: str = ""
    """A lane, a table, a login."""
    age: timedelta | None = None
    """Of the oldest."""
    facts: str = ""
    ids: Sequence[str] = ()
    """Up to five, as examples."""


def exit_code(findings: Sequence[Finding]) -> int:
    return max((EXIT_CODES[finding.check.severity] for finding in findings), default=0)


def line(finding: Finding) -> str:
    check = finding.check
    count = f"{'at least ' if finding.at_least else ''}{finding.count}"
    since = f"for {_rough(finding.age)}" if finding.age is not None else ""
    facts = ", ".join(part for part in (finding.subject, count, since, finding.facts) if part)
    examples = f" Such as {' '.join(finding.ids)}." if finding.ids else ""
    return f"{check.severity:<7} {check.name} ({facts}): {check.means} {check.do}{examples}"


def as_json(findings: Sequence[Finding]) -> str:
    """An array, empty where nothing was found."""
    return json.dumps(
        [
            {
                "check": finding.check.name,
                "severity": finding.check.severity,
                "subject": finding.subject,
                "count": finding.count,
                "at_least": finding.at_least,
                "age_seconds": None if finding.age is None else int(finding.age.total_seconds()),
                "facts": finding.facts,
                "ids": list(finding.ids),
                "means": finding.check.means,
                "do": finding.check.do,
            }
            for finding in findings
        ],
        indent=2,
    )


def _rough(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
