"""The services' logins, held against shared/roles.py."""

import re
from collections.abc import Iterator, Mapping, Sequence

from shared.doctor.checks import LOGINS, LOGINS_DIFFER
from shared.doctor.findings import Finding
from shared.roles import SERVICES, SESSION, TABLES, TIMEOUTS

PRIVILEGE = re.compile(r"(?P<name>[A-Z]+)(?: \((?P<columns>[^)]*)\))?")
SETTINGS = TIMEOUTS | SESSION

Grant = tuple[str, str, str]
"""Table, privilege, column or nothing."""


def service_of(login: str) -> str | None:
    suffix = login.rpartition("_")[2]
    return suffix if suffix in SERVICES else None


def needed(service: str) -> frozenset[Grant]:
    return frozenset(
        (table, found["name"], column)
        for table, services in TABLES.items()
        for found in PRIVILEGE.finditer(services.get(service, ""))
        for column in (found["columns"] or "").split(", ")
    )


def missing_logins(logins: Sequence[str]) -> Iterator[Finding]:
    known = {service_of(login) for login in logins}
    for service in SERVICES:
        if service not in known:
            yield Finding(LOGINS, 1, subject=service, facts="has no login")


def judge(login: str, settings: Sequence[str], granted: frozenset[Grant]) -> Iterator[Finding]:
    """What is wrong with a service's login; of its settings the last counts."""
    service = service_of(login)
    if service is None:
        return
    lacking, more = needed(service) - granted, granted - needed(service)
    if lacking:
        yield Finding(LOGINS, len(lacking), subject=login, facts=f"lacks {_named(lacking)}")
    if more:
        yield Finding(LOGINS_DIFFER, len(more), subject=login, facts=f"has {_named(more)}")
    if others := sorted(SETTINGS.items() - _settings(settings).items()):
        said = ", ".join(f"{name} = {value}" for name, value in others)
        yield Finding(LOGINS_DIFFER, len(others), subject=login, facts=f"is without {said}")


def _settings(said: Sequence[str]) -> Mapping[str, str]:
    pairs = (setting.partition("=") for setting in said)
    return {name.lower(): value for name, _, value in pairs}


def _named(grants: frozenset[Grant]) -> str:
    """The first five."""
    names = [f"{privilege} on {table}{f' ({column})' if column else ''}" for table, privilege, column in sorted(grants)]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
