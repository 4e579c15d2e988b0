"""Writes docs/metrics.md from the declarations: `python -m tools.metrics_page`, with `--check` to compare."""

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

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

HEAD = """\
# Metrics

This page is written by `python -m tools.metrics_page`.

They are off until one of the standard's variables asks for them, on each process:

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
priority)`). What could not be read for a minute is not told any more. The doctor's bounds are the defaults, or what
LEASE, RETENTION and CONTENT_RETENTION say to the scheduler; its `schema` and `logins` are the owner's to see.
"""
TAIL = """\
Durations are in seconds, with the buckets of OpenTelemetry's conventions for RPC; latency has an hour on top.
"""


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expression: str
    lasts: str
    do: str


ALERTS = (
    Alert(
        "NotifyQueueUnseen",
        "absent(notifyqueue_queue_depth)",
        "2m",
        "No scheduler says how the queue stands: none runs, none reaches the database, or nobody scrapes it.",
    ),
    Alert(
        "NotifyQueueStranded",
        "max by (channel) (notifyqueue_lane_stranded) == 1",
        "2m",
        "Start a worker that serves the lane, or see why the last one ended.",
    ),
    Alert(
        "NotifyQueueLate",
        'max by (channel) (notifyqueue_queue_lag_seconds{priority="HIGH"}) > 300 '
        "unless on (channel) max by (channel) (notifyqueue_lane_paused) == 1",
        "5m",
        "Look at the provider's outcomes and the breaker first, then at what workers hold; add workers.",
    ),
    Alert(
        "NotifyQueueRefuses",
        'sum(rate(rpc_server_call_duration_seconds_count{rpc_response_status_code=~"INTERNAL|UNKNOWN|UNAVAILABLE|'
        'DEADLINE_EXCEEDED|DATA_LOSS"}[5m])) > 0.05 * sum(rate(rpc_server_call_duration_seconds_count[5m]))',
        "5m",
        "One call in twenty fails for a reason of ours: see `rpc.done` of level error in the logs.",
    ),
    Alert(
        "NotifyQueueBroken",
        'max by (finding) (notifyqueue_doctor_findings{severity="ERROR", finding!="stranded_lanes"}) > 0',
        "5m",
        "Something that is promised does not happen: run the doctor, which says what and what to do.",
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


def named_in(expression: str) -> Set[str]:
    """The metrics that an expression is about."""
    found = re.findall(r"\b(?:notifyqueue|rpc|messaging)_[a-z_]+(?=[\[{)])", expression)
    return {re.sub(r"_(count|sum|bucket)$", "", name) for name in found}


def page() -> str:
    parts = [HEAD]
    for title, metrics in SECTIONS.items():
        parts += [f"## {title}\n", *([QUEUE] if title == "The queue" else []), _table(metrics)]
    parts += [TAIL, "## What pages\n", "Five; everything else is for whoever looks.\n", "```yaml", "groups:"]
    parts += ["  - name: notifyqueue", "    rules:", *map(_rule, ALERTS), "```", ""]
    return "\n".join(parts)


def _table(metrics: Sequence[Metric]) -> str:
    rows = [
        f"| `{metric.name}`<br>`{prometheus_name(metric)}` | {type(metric).__name__.lower()} | `{metric.unit}` "
        f"| {', '.join(f'`{name}`' for name in metric.attributes)} | {metric.means} |"
        for metric in metrics
    ]
    return "\n".join([*COLUMNS, *rows, ""])


def _rule(alert: Alert) -> str:
    return f"""\
      - alert: {alert.name}
        expr: >-
          {alert.expression}
        for: {alert.lasts}
        labels: {{severity: page}}
        annotations:
          summary: >-
            {alert.do}"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.metrics_page")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    print("docs/metrics.md is not what the declarations say: run `python -m tools.metrics_page`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
