"""Whether two requests under one key are the same request: a hash of their canonical form.

The form has a version, which the fingerprint begins with. It leaves out what is not set, so a field that comes later
changes no fingerprint of a request that does not use it. A national telephone number stands in it as its digits: what
the tenant's region makes of them may change, and a replay must stay one. So must that of a request with a template, of
which it has what was asked, and not what it was rendered to; and that for a subscriber, who may have moved.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from services.scheduler.notification import Request, TemplateUse

VERSION = b"\x01"

# What a request means when it does not say.
DEFAULTS: Mapping[str, object] = {"priority": 2, "at_most_once": False, "category": "", "labels": {}}


def fingerprint(request: Request) -> bytes:
    """One byte of version and a SHA-256. Equal instants are equal in any offset; a delay is what it is."""
    said = {
        "channel": request.channel,
        "address": request.address if request.subscriber is None else None,
        "subscriber": request.subscriber,
        "content": request.content if request.template is None else None,
        "template": _template(request.template),
        "priority": request.priority,
        "due": _moment(request.due),
        "expiry": _moment(request.expiry),
        "at_most_once": request.at_most_once,
        "category": request.category,
        "reference": request.reference,
        "labels": request.labels,
    }
    form = {name: value for name, value in said.items() if value is not None and value != DEFAULTS.get(name)}
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return VERSION + hashlib.sha256(text.encode()).digest()


def _template(use: TemplateUse | None) -> Mapping[str, object] | None:
    if use is None:
        return None
    said = {"name": use.name, "version": use.version, "locale": use.locale, "variables": use.variables}
    return {name: value for name, value in said.items() if value is not None}


def _moment(moment: datetime | timedelta | None) -> str | None:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(moment, timedelta):
        return f"+{moment // timedelta(microseconds=1)}us"
    return None
