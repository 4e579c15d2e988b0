"""Watching a notification until it has ended, over as many calls as that takes."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Protocol

import grpc

from notifyqueue.errors import DeadlineExceeded, NotifyQueueError, Unavailable
from notifyqueue.v1.notification_pb2 import Notification
from notifyqueue.v1.scheduler_pb2 import WatchNotificationResponse

FIRST_PAUSE = 0.2  # of seconds; doubles up to
LONGEST_PAUSE = 10.0


class Open(Protocol):
    def __call__(self, *, within: timedelta | None) -> AsyncGenerator[WatchNotificationResponse, None]:
        """A call, of at most that long."""


async def watch(open_: Open, within: timedelta | None, patience: timedelta) -> AsyncGenerator[Notification, None]:
    """Every state that is told, each once, until one has an end."""
    now = asyncio.get_running_loop().time
    until = None if within is None else now() + within.total_seconds()
    heard, tries, revision = now(), 0, 0
    while True:
        left = None if until is None else until - now()
        try:
            if left is not None and left <= 0:
                raise DeadlineExceeded("it has not ended in time", code=grpc.StatusCode.DEADLINE_EXCEEDED)
            async with aclosing(open_(within=None if left is None else timedelta(seconds=left))) as answers:
                async for answer in answers:
                    found = answer.notification
                    heard, tries = now(), 0
                    if found.revision > revision:  # a call that goes on begins with what is known already
                        revision = found.revision
                        yield found
                    if found.HasField("finish_time"):
                        return
            error: NotifyQueueError = Unavailable("the stream ended early", code=grpc.StatusCode.UNAVAILABLE)
        except NotifyQueueError as told:
            error = told
        in_time = (until is None or now() < until) and now() - heard < patience.total_seconds()
        if not (revision and error.temporary and in_time):
            raise error
        await asyncio.sleep(_pause(tries, error))
        tries += 1


def _pause(tries: int, error: NotifyQueueError) -> float:
    asked = error.retry_after.total_seconds() if error.retry_after else 0.0
    return max(min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE) * random.uniform(0.5, 1.0), asked)
