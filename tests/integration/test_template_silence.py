"""Neither a value nor a text of a template is in any log or error."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio

from notifyqueue.v1 import scheduler_pb2_grpc, templates_pb2, templates_pb2_grpc
from tests.conftest import login
from tests.processes import environment, ready, running
from tests.templates import GREETING, NAME, put, templated
from tests.waiting import eventually

MARKERS = ("mk-text", "mk-value", "mk-header", "990177")
HTML = "mk-text {{ name }} {{ order|int }}{{ order // (order - 990177) }}"
SAID = {"email": {**GREETING, "html": HTML, "headers": {"X-A": "mk-header"}}}
BAD_TEXTS = (
    *("mk-text {{ 'mk-value' oops", "mk-text {{ mk-value + 1 }}", "{% include 'mk-value' %}"),
    *("{{ 'mk-text'|mk }}", "{% mk-value %}", "mk-text {{ 'mk-value'"),
)
BAD_VARIABLES = (
    '{"order": "mk-value", "name": "mk-value"}',
    '{"name": "mk-value"}',
    '{"order": "1\\nmk-value", "name": 1}',
    '{"order": {"mk": "mk-value"}, "name": ["mk-value"]}',
    '{"order": 990177, "name": 1}',  # the engine says what it cannot divide
    '{"mk-value',
    '{"mk-value": 1, "mk-value": 2}',
)


async def test_no_log_and_no_error_has_what_is_said(database_url: str, tmp_path: Path) -> None:
    settings = environment(login(database_url, "scheduler")) | {"NOTIFYQUEUE_LOG_LEVEL": "DEBUG"}
    told: list[str] = []
    async with running("services.scheduler", tmp_path, settings) as process:
        address = f"127.0.0.1:{await process.port()}"
        await ready(address, "notifyqueue.v1.Templates")
        async with grpc.aio.insecure_channel(address) as channel:
            templates = templates_pb2_grpc.TemplatesStub(channel)
            scheduler = scheduler_pb2_grpc.SchedulerStub(channel)
            await templates.PutTemplate(put(en=SAID))
            await scheduler.ScheduleNotification(templated(variables='{"order": 7, "name": "mk-value"}'))
            calls: list[Any] = [
                *(templates.PutTemplate(put(name="bad", en={"sms": {"text": text}})) for text in BAD_TEXTS),
                *(
                    templates.RenderTemplate(templates_pb2.RenderTemplateRequest(name=NAME, variables_json=variables))
                    for variables in BAD_VARIABLES
                ),
                *(
                    scheduler.ScheduleNotification(templated(f"key-{number}", variables=variables))
                    for number, variables in enumerate(BAD_VARIABLES)
                ),
            ]
            for call in calls:
                with suppress(grpc.aio.AioRpcError):
                    await call
                    raise AssertionError("this was to be refused")
                told.append(f"{await call.details()} {await call.trailing_metadata()}")
        # A call's line is written once its answer has left.
        await eventually(lambda: process.output().count("rpc.done") > len(calls))
        logged = process.output()
    assert len(told) == len(calls)
    for marker in MARKERS:
        assert marker not in logged
        assert marker not in "".join(told)
