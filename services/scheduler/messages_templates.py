"""Between the contract's messages about templates and this service's own types."""

from collections.abc import Mapping
from typing import Any

from notifyqueue.v1 import notification_pb2, templates_pb2
from services.scheduler import segments, templates
from services.scheduler.contents import CHANNELS, Parts
from services.scheduler.faults import Faults
from services.scheduler.messages import parts, timestamp
from services.scheduler.notification import TemplateUse
from services.scheduler.templates import Draft, Rendered, Template, Use, VariantDraft

CONTENTS = {
    "EMAIL": notification_pb2.EmailContent,
    "SMS": notification_pb2.SmsContent,
    "PUSH": notification_pb2.PushContent,
}
FIELDS = {channel: name for name, channel in CHANNELS.items()}


def draft(request: templates_pb2.PutTemplateRequest) -> Draft:
    """Raises RequestInvalid."""
    return templates.check(request.name, request.default_locale, [_variant_draft(each) for each in request.variants])


def _variant_draft(message: templates_pb2.TemplateVariant) -> VariantDraft:
    content = message.WhichOneof("content")
    return VariantDraft(message.locale, content, parts(getattr(message, content)) if content else {})


def use(request: templates_pb2.RenderTemplateRequest) -> TemplateUse:
    """Raises RequestInvalid."""
    faults = Faults()
    asked = Use(request.name, request.version, None, request.locale, request.variables_json)
    found = templates.used(faults, asked, "", name_field="name")
    faults.raise_any()
    return found


def template(stored: Template) -> templates_pb2.Template:
    return templates_pb2.Template(
        name=stored.name,
        channel=notification_pb2.Channel.Value(f"CHANNEL_{stored.channel}"),
        version=stored.version,
        default_locale=stored.default_locale,
        locales=stored.locales,
        create_time=timestamp(stored.created_at),
        actor=stored.actor,
    )


def variants(stored: Template) -> list[templates_pb2.TemplateVariant]:
    return [
        templates_pb2.TemplateVariant(locale=locale, **_content(stored.channel, said))
        for locale, said in sorted(stored.variants.items())
    ]


def _content(channel: str, said: Parts | Mapping[str, object]) -> dict[str, Any]:
    fields: dict[str, Any] = dict(said)
    return {FIELDS[channel]: CONTENTS[channel](**fields)}


def rendered(channel: str, found: Rendered) -> templates_pb2.RenderTemplateResponse:
    message = templates_pb2.RenderTemplateResponse(
        version=found.version, locale=found.locale, size=_size(found.content), **_content(channel, found.content)
    )
    if channel == "SMS":
        size = segments.size(str(found.content["text"]))
        message.sms_size.CopyFrom(
            templates_pb2.SmsSize(
                encoding=templates_pb2.SmsSize.Encoding.Value(f"ENCODING_{size.encoding}"),
                segments=size.segments,
                units=size.units,
            )
        )
    return message


def _size(content: Mapping[str, object]) -> int:
    return sum(
        len(part.encode())
        if isinstance(part, str)
        else sum(len(f"{name}{value}".encode()) for name, value in part.items())
        for part in content.values()
        if isinstance(part, str | dict)
    )
