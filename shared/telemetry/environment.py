"""What the standard's variables say of where telemetry goes, and of who tells it."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

log = structlog.get_logger()

OTLP, CONSOLE, NONE = "otlp", "console", "none"


def disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def asked(signal: str) -> bool:
    """Whether a signal goes anywhere. Where none does, the SDK is not loaded: it is a fifth of what a process would."""
    return not disabled() and _names(signal) != [NONE]


def resource(service: str, instance: UUID) -> "Resource":
    """Who this is. What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes before."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource(
        {
            "service.name": f"notifyqueue-{service}",
            "service.namespace": "notifyqueue",
            "service.instance.id": str(instance),
            "service.version": _version(),
        }
    )
    return Resource.create({}).merge(ours).merge(OTELResourceDetector().detect())


def exporters(signal: str, known: Sequence[str]) -> list[str]:
    """Where a signal (TRACES, METRICS) goes, as OTEL_{signal}_EXPORTER lists it.

    Unset, it is OTLP where there is an endpoint for that, and nowhere else: the standard's OTLP to this machine would
    be a fault in every log of those who have no collector. What is unknown is left out, and logged.
    """
    names = _names(signal)
    if unknown := [name for name in names if name not in (*known, NONE)]:
        log.warning("telemetry.exporter_unknown", setting=f"OTEL_{signal}_EXPORTER", count=len(unknown))
    return [name for name in dict.fromkeys(names) if name in known]


def _names(signal: str) -> Sequence[str]:
    asked = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    if not asked:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        asked = OTLP if any(os.environ.get(name) for name in endpoints) else NONE
    return [name.strip() for name in asked.lower().split(",")]


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("notifyqueue")
    except metadata.PackageNotFoundError:  # an image has the code and not the package
        return "unknown"
