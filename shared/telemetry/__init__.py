"""Traces and metrics of a process, as the standard OTEL_* variables ask for them. Without one of them there are none.

What is exported says ids, codes and numbers: no content, address, key, secret, label, and no words of an exception.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

# Our spans know no such limit, and where it is no number the SDK cannot even be imported.
os.environ.pop("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", None)

from shared.telemetry import readers, traces
from shared.telemetry.environment import disabled, resource


@asynccontextmanager
async def configured(service: str, instance: UUID) -> AsyncIterator[None]:
    """While it lasts, this process tells what it does; leaving waits a few seconds for what is not told yet."""
    spans, values = AsyncExitStack(), AsyncExitStack()
    try:
        if not disabled():
            about = resource(service, instance)
            await spans.enter_async_context(traces.exported(about))
            await values.enter_async_context(readers.exported(about))
        yield
    finally:
        await asyncio.gather(spans.aclose(), values.aclose())  # one wait, not two
