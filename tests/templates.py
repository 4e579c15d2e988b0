"""Templates, as tests bring them in and use them."""

from collections.abc import Mapping
from typing import Any

from notifyqueue.v1 import notification_pb2, scheduler_pb2, templates_pb2
from services.scheduler.notification import TemplateUse
from services.scheduler.templates import Rendered, VersionRef
from shared.errors import ApiError

NAME = "order-shipped"
GREETING = {"subject": "Order {{ order }}", "text": "Hello {{ name }}", "html": "<p>Hello {{ name }}</p>"}


class NoTemplates:
    """For requests that name none."""

    async def render_all(
        self, wanted: Mapping[Any, tuple[VersionRef, TemplateUse]]
    ) -> Mapping[Any, Rendered | ApiError]:
        raise AssertionError(f"nobody asked for {len(wanted)} of these")


def put(
    *, name: str = NAME, default_locale: str = "en", **variants: Mapping[str, Any]
) -> templates_pb2.PutTemplateRequest:
    """By locale (`de_AT` for `de-AT`) the content of each, by its kind; without any, a mail in English."""
    said = variants or {"en": {"email": GREETING}}
    return templates_pb2.PutTemplateRequest(
        name=name,
        default_locale=default_locale,
        variants=[
            templates_pb2.TemplateVariant(locale=locale.replace("_", "-"), **content)
            for locale, content in said.items()
        ],
    )


def templated(key: str = "order-17", *, variables: str = '{"order": 17, "name": "Ann"}', **fields: Any) -> Any:
    """A request for a mail from the template."""
    asked: dict[str, Any] = {"template": NAME, "channel": notification_pb2.CHANNEL_EMAIL, "variables_json": variables}
    own = {name: fields.pop(name) for name in ("version", "locale", "channel") if name in fields}
    least: dict[str, Any] = {"address": "someone@example.com", "template": asked | own}
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, **least | fields)
