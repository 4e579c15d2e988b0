"""Writes docs/metrics.md and prometheus/alerts.yml: `python -m tools.metrics_page`, with `--check` to compare."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from shared.telemetry.metrics import METRICS, SECTIONS, Counter, Gauge, Histogram
from shared.telemetry.readers import provided, scraped

Metric = Counter | Gauge | Histogram

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "prometheus" / "alerts.yml"

HEAD = """\
# Metrics

This page is written by `python -m tools.metrics_page`.

They are off until one of the standard's variables asks for them, on each process (`docker compose up` does, and shows
them at <http://127.0.0.1:9090>):

```sh
OTEL_METRICS_EXPORTER=prometheus OTEL_EXPORTER_PROMETHEUS_HOST=0.0.0.0 OTEL_EXPORTER_PROMETHEUS_PORT=9464
OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317   # every 60 s: OTEL_METRIC_EXPORT_INTERVAL
```

`console` prints them, several may be named, and OTEL_SDK_DISABLED ends all of it. Unset, it is `otlp` where that has an
endpoint. Scraping is without TLS and without a key: who listens on 0.0.0.0 keeps strangers away by other means.
Processes on one machine need a port each; one that is taken is logged (`metrics.unserved`) and stops nobody.
Histograms are cumulative, also where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for something else.

Every attribute is from a list that is known: there is no id, no address and no tenant among them. A provider's code is
shown where its table ([providers.md](providers.md)) lists it, and is `other` where not; and no metric has more than 500
sets of attributes, after which all are `other`.
"""
COLUMNS = ("| metric, and in Prometheus | kind | unit | attributes | what it says |", "| --- " * 5 + "|")
QUEUE = """\
Each scheduler that exports metrics reads them of the database: by one statement every 15 seconds, and the doctor's
checks ([operations.md](operations.md)) once a minute. All say the same, so take the largest (`max by (channel,
priority)`). What could not be read for a minute is not told any more, of findings for three. The doctor's bounds are
the defaults, or what LEASE, RETENTION and CONTENT_RETENTION say to the scheduler; its `schema` and `logins` are the
owner's to see.
"""
TAIL = """\
Durations are in seconds, with the buckets of OpenTelemetry's conventions for RPC; latency has an hour on top.
"""


PAGES = """\
## What pages

Five; everything else is for whoever looks. [alerts.yml](../prometheus/alerts.yml) has them as Prometheus takes them:
`rule_files`. Whoever pushes by OTLP has the same names there. They page for what callers and recipients notice, and for
what no process mends by itself. A lane that a person has paused pages nobody: `paused_lanes` is for whoever looks. Nor
does the share of late attempts, over whatever windows: a newsletter is late on purpose, and latency has no priority.
Lag has.
"""
RULES_HEAD = """\
# Written by `python -m tools.metrics_page`. docs/metrics.md says of each what to look at, and what to do.
groups:
  - name: notifyqueue
    rules:
"""


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expression: str
    lasts: str
    means: str
    """One sentence, for whoever is woken by it."""
    look: str
    do: str


UNPAUSED = "unless on (channel) max by (channel) (notifyqueue_lane_paused) == 1"
CALLS = "rpc_server_call_duration_seconds_count"
FAILED = f'{CALLS}{{error_type!=""}}'

ALERTS = (
    Alert(
        "NotifyQueueUnseen",
        "absent(notifyqueue_queue_depth)",
        "2m",
        "No scheduler says how the queue stands: none runs, none reaches the database, or nobody scrapes it.",
        "Are schedulers up, and do they answer at their port for metrics (`up` in Prometheus)? Are they ready "
        "(`python -m shared.healthcheck HOST:50061 notifyqueue.v1.Scheduler`)? `gauges.unread` in their logs, "
        "said once, has why nothing is read of the database (`cause`, `sqlstate`).",
        "Start one, or mend the database or the scraper. While no scheduler runs nothing is accepted; while the "
        "database is away nothing is sent either. What was accepted is kept, and goes on by itself. Stranded "
        "and Late see nothing meanwhile, nor does Broken while the database is away.",
    ),
    Alert(
        "NotifyQueueStranded",
        f"max by (channel) (notifyqueue_lane_stranded) == 1 {UNPAUSED}",
        "2m",
        "Notifications of this channel are due, and no worker that lives serves it.",
        "How the last worker ended: the last lines of its log, and its exit code (78: its settings are wrong). "
        "`notifyqueue_process_draining`: one that was drained by a call takes nothing until it is told to.",
        "Start a worker that has the channel's provider; `notifyqueue resume worker` for one that was drained. "
        "Nothing is lost meanwhile but what expires. Where each new worker dies as well, look for "
        "`crash_suspects` with the doctor.",
    ),
    Alert(
        "NotifyQueueLate",
        '(max by (channel, priority) (notifyqueue_queue_lag_seconds{priority="HIGH"}) > 120 '
        'or max by (channel, priority) (notifyqueue_queue_lag_seconds{priority="NORMAL"}) > 1800) '
        f"{UNPAUSED}",
        "3m",
        "What is due waits for too long: two minutes with priority HIGH, half an hour with NORMAL.",
        "`notifyqueue_lane_breaker_open` and `notifyqueue_lane_held_seconds`: then it is the provider, and `sum "
        "by (provider, code) (rate(notifyqueue_provider_outcomes_total[5m]))` has its answers. Else "
        "`notifyqueue_worker_in_flight` against `notifyqueue_worker_concurrency`: full is too few workers or a "
        "slow provider (`notifyqueue_provider_duration_seconds`), and nearly empty is claims that do not come "
        "(`notifyqueue_claim_duration_seconds`, `notifyqueue_database_snapshot_age`).",
        "Full: more workers, or a higher WORKER_CONCURRENCY. Slow claims: the doctor's `held_snapshots` and "
        "`vacuum_behind`. A provider that fails or asks for rest: nothing is lost, it is probed, and what was "
        "not sent goes out by itself; tell those who wait. LOW pages nobody: a newsletter may take its time, and "
        "what is more urgent goes before it; so give campaigns that priority.",
    ),
    Alert(
        "NotifyQueueRefuses",
        f"sum(rate({FAILED}[5m])) > 0.05 * sum(rate({CALLS}[5m])) and sum(increase({FAILED}[10m])) > 10",
        "5m",
        "More than one call in twenty, and more than ten in ten minutes, fail for a reason of ours.",
        f"`sum by (rpc_method, rpc_status_code) (rate({FAILED}[5m]))` says which; `rpc.done` of level error in the "
        "logs has the request id of each, and `rpc.failed` or `rpc.cause` under the same id has why.",
        "UNAVAILABLE: the database, or a roll-out that ends processes faster than clients find others. "
        "DEADLINE_EXCEEDED: a slow database, or clients that allow less than a second. INTERNAL and UNKNOWN: a "
        "defect; go back to the version before, if there was a change, and report it. Clients may repeat: with "
        "their key, nothing is accepted twice.",
    ),
    Alert(
        "NotifyQueueBroken",
        'max by (finding) (notifyqueue_doctor_findings{severity="ERROR", finding!="stranded_lanes"}) > 0',
        "5m",
        "Something that is promised does not happen, and will not by itself: the finding says what.",
        "`python -m shared.admin doctor`, which prints where, how many, for how long, and some ids.",
        "As it says; [operations.md](operations.md#what-is-found) has each finding.",
    ),
)


@cache
def _prometheus_names() -> Mapping[str, str]:
    """By what a metric means: as the library itself calls them."""
    registry = CollectorRegistry()
    with provided(Resource.get_empty(), [scraped(registry)]) as provider:
        for metric in METRICS:
            _move(metric)
        found = {family.documentation: family for family in registry.collect()}
        provider.shutdown()
    return {
        metric.means: f"{found[metric.means].name}{'_total' if isinstance(metric, Counter) else ''}"
        for metric in METRICS
    }


def _move(metric: Metric) -> None:
    attributes = metric.attributes
    match metric:
        case Counter():
            metric.add(1, *attributes)
        case Gauge():
            metric.show({attributes: 1})
        case Histogram():
            metric.record(1, *attributes)


def prometheus_name(metric: Metric) -> str:
    return _prometheus_names()[metric.means]


def named_in(text: str) -> Set[str]:
    """The metrics that an expression is about."""
    bare = re.sub(r"\b(?:by|on) \([^)]*\)", "", text)  # what it groups by
    found = re.findall(r"\b(?:notifyqueue|rpc|messaging)_[a-z_]+(?![a-z_=!])", bare)
    return {re.sub(r"_(count|sum|bucket)$", "", name) for name in found}


def labels_in(text: str) -> Set[str]:
    """What an expression selects or groups by."""
    grouped = ",".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", text))
    return {*re.findall(r"(\w+)(?:=~|!=|!~|=)\"", text), *(name.strip() for name in grouped.split(",") if name)}


def page() -> str:
    parts = [HEAD]
    for title, metrics in SECTIONS.items():
        parts += [f"## {title}\n", *([QUEUE] if title == "The queue" else []), _table(metrics)]
    parts += [TAIL, PAGES, *map(_runbook, ALERTS)]
    return "\n".join(parts)


def rules() -> str:
    return RULES_HEAD + "\n".join(map(_rule, ALERTS)) + "\n"


def _table(metrics: Sequence[Metric]) -> str:
    rows = [
        f"| `{metric.name}`<br>`{prometheus_name(metric)}` | {type(metric).__name__.lower()} | `{metric.unit}` "
        f"| {', '.join(f'`{name}`' for name in metric.attributes)} | {metric.means} |"
        for metric in metrics
    ]
    return "\n".join([*COLUMNS, *rows, ""])


def _runbook(alert: Alert) -> str:
    return f"""\
### {alert.name}

{alert.means} Pages when it has lasted for {alert.lasts}.

- **Look at:** {alert.look}
- **Do:** {alert.do}
"""


def _rule(alert: Alert) -> str:
    return f"""\
      - alert: {alert.name}
        expr: >-
          {alert.expression}
        for: {alert.lasts}
        labels: {{severity: page}}
        annotations:
          summary: >-
            {alert.means}
          runbook: docs/metrics.md#{alert.name.lower()}"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.metrics_page")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    made = {PAGE: page(), RULES: rules()}
    if not parser.parse_args().check:
        for path, text in made.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what the declarations say: run `python -m tools.metrics_page`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
