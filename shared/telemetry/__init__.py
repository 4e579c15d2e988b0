"""Traces and metrics of a process, as the standard OTEL_* variables ask for them. Without one of them there are none.

What is exported says ids, codes and numbers: no content, address, key, secret, label, and no words of an exception.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from shared.telemetry import traces
from shared.telemetry.environment import asked, resource

# Our spans know no such limit, and where it is no number the SDK cannot even be imported.
os.environ.pop("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", None)


@asynccontextmanager
async def configured(service: str, instance: UUID) -> AsyncIterator[None]:
    """While it lasts, this process tells what it does; leaving waits a few seconds for what is not told yet."""
    spans, values = AsyncExitStack(), AsyncExitStack()
    try:
        if asked("TRACES"):
            await spans.enter_async_context(traces.exported(resource(service, instance)))
        if asked("METRICS"):
            from shared.telemetry import readers  # the SDK's part for metrics, that they alone need

            await values.enter_async_context(readers.exported(resource(service, instance)))
        yield
    finally:
        await asyncio.gather(spans.aclose(), values.aclose())  # one wait, not two
