"""`notifyqueue send`: one notification, from what was typed."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from notifyqueue import (
    Channel,
    EmailContent,
    Priority,
    PushContent,
    ScheduleNotificationRequest,
    SmsContent,
    to_template,
)
from notifyqueue.cli.output import enum_name, local
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.templates import LocaleOption, VariablesOption, VarOption, to_variables
from notifyqueue.cli.values import to_pair, to_span, to_text, to_time, to_value
from notifyqueue.times import to_duration, to_timestamp

AT_FILE = "@FILE reads it from a file, @- from stdin."


@command()
async def send(
    session: Session,
    *,
    key: Annotated[
        str,
        typer.Option(help="The idempotency key: from what this is about, so that a repetition has the same one."),
    ],
    to: Annotated[str, typer.Option(help="The address, number or device token.")] = "",
    subscriber: Annotated[str, typer.Option(help="The subscriber's name, instead of an address.")] = "",
    subject: Annotated[str, typer.Option(help="Makes it a mail.")] = "",
    text: Annotated[str, typer.Option(help=f"The mail's plain text. {AT_FILE}")] = "",
    html: Annotated[str, typer.Option(help=f"The mail's HTML. {AT_FILE}")] = "",
    sender: Annotated[str, typer.Option(help="Whom the mail is from.")] = "",
    reply_to: Annotated[str, typer.Option(help="Where answers to the mail go.")] = "",
    sms: Annotated[str, typer.Option(help=f"Makes it a text message: what it says. {AT_FILE}")] = "",
    title: Annotated[str, typer.Option(help="Makes it a push message: its first line.")] = "",
    body: Annotated[str, typer.Option(help=f"The push message's body. {AT_FILE}")] = "",
    data: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="For the application.")] = None,
    template: Annotated[str, typer.Option(help="What it says is rendered from this template. Needs --channel.")] = "",
    channel: Annotated[str, typer.Option(metavar="EMAIL|SMS|PUSH", help="The template's.")] = "",
    template_version: Annotated[int, typer.Option(min=0, help="Default: the newest.")] = 0,
    locale: LocaleOption = "",
    var: VarOption = None,
    variables: VariablesOption = "",
    at: Annotated[datetime | None, typer.Option(parser=to_time, metavar="TIME", help="When it is due.")] = None,
    in_: Annotated[timedelta | None, typer.Option("--in", parser=to_span, metavar="SPAN", help="Or how soon.")] = None,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(parser=to_span, metavar="SPAN", help="How long after it is due it is still worth sending."),
    ] = None,
    priority: Annotated[str, typer.Option(metavar="HIGH|NORMAL|LOW")] = "",
    reference: Annotated[str, typer.Option(help="Your own id (an order, a campaign), to list by.")] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Carried to webhooks.")] = None,
    category: Annotated[str, typer.Option(help="What can be opted out of.")] = "",
    at_most_once: Annotated[
        bool, typer.Option("--at-most-once", help="Never try again once it may have been delivered.")
    ] = False,
) -> None:
    """Schedules one notification. Its channel follows from --subject, --sms or --title; or it is a template's.

    Run again as it was, it answers what the first one stored.
    """
    request = ScheduleNotificationRequest(
        idempotency_key=key,
        priority=to_value(Priority, priority),
        at_most_once=at_most_once,
        category=category,
        reference=reference,
        labels=dict(to_pair(each) for each in label or ()),
    )
    email = {"subject": subject, "text": text, "html": html, "sender": sender, "reply_to": reply_to}
    push = {"title": title, "body": body}
    _address(request, to, subscriber)
    if not template:
        _say(request, email, sms, push, data or ())
    elif channel and not any((*email.values(), sms, *push.values(), data)):
        which, said = to_value(Channel, channel), to_variables(var, variables)
        request.template.CopyFrom(to_template(template, which, said, version=template_version, locale=locale))
    else:
        raise typer.BadParameter("--template needs the --channel, and no content besides")
    _time(request, at, in_, expires_in)
    await _schedule(session, request)


async def _schedule(session: Session, request: ScheduleNotificationRequest) -> None:
    async with session.scheduler() as client:
        answer = await client.schedule(request)
    found = answer.notification
    did = "already accepted" if answer.replayed else "accepted"
    session.output.show(
        answer, f"{did} {found.notification_id}: {enum_name(found, 'status')}, due {local(found.due_time)}"
    )


def _address(request: ScheduleNotificationRequest, to: str, subscriber: str) -> None:
    if bool(to) == bool(subscriber):
        raise typer.BadParameter("one of --to and --subscriber is needed")
    if to:
        request.address = to
    else:
        request.subscriber = subscriber


def _say(
    request: ScheduleNotificationRequest,
    email: Mapping[str, str],
    sms: str,
    push: Mapping[str, str],
    data: Sequence[str],
) -> None:
    mail, pushed = _read(email), _read(push)
    if [bool(mail), bool(sms), bool(pushed or data)].count(True) != 1:
        raise typer.BadParameter(
            "content of one channel is needed: --subject with --text or --html, or --sms, or --title with --body"
        )
    if mail:
        request.email.CopyFrom(EmailContent(**mail))
    elif sms:
        request.sms.CopyFrom(SmsContent(text=to_text(sms)))
    else:
        request.push.CopyFrom(PushContent(**pushed, data=dict(to_pair(each) for each in data)))


def _read(parts: Mapping[str, str]) -> dict[str, Any]:
    return {name: to_text(value) for name, value in parts.items() if value}


def _time(
    request: ScheduleNotificationRequest, at: datetime | None, in_: timedelta | None, expires_in: timedelta | None
) -> None:
    if at is not None and in_ is not None:
        raise typer.BadParameter("--at and --in exclude one another")
    if at is not None:
        request.due_time.CopyFrom(to_timestamp(at))
    if in_ is not None:
        request.delay.CopyFrom(to_duration(in_))
    if expires_in is not None:
        request.ttl.CopyFrom(to_duration(expires_in))
