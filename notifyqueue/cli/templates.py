"""`notifyqueue template`: what notifications say, kept with places for variables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from notifyqueue.cli.output import enum_name, local, plain, to_dict
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_pair, to_text
from notifyqueue.v1.templates_pb2 import GetTemplateResponse, PutTemplateRequest, RenderTemplateResponse

template = typer.Typer(
    name="template", help="Keeps templates, and says what comes of them.", rich_markup_mode=None, no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(help="Its name.")]
VersionOption = Annotated[int, typer.Option("--template-version", min=0, help="Default: the newest.")]
LocaleOption = Annotated[str, typer.Option(help="A language tag, as de-AT. Default: the template's.")]
VarOption = Annotated[list[str] | None, typer.Option(metavar="NAME=TEXT", help="A variable.")]
VariablesOption = Annotated[
    str, typer.Option(metavar="JSON", help="More of them, as an object. @FILE reads it from a file, @- from stdin.")
]


def to_variables(var: Sequence[str] | None, variables: str) -> dict[str, Any]:
    """Raises BadParameter."""
    try:
        found = json.loads(to_text(variables) or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter("--variables is a JSON object")
    return found | dict(to_pair(each) for each in var or ())


@template.command()
@command()
async def put(
    session: Session,
    *,
    name: NameArgument,
    source: Annotated[
        str,
        typer.Argument(metavar="JSON", help="`default_locale` and `variants` as proto JSON; @FILE, or @- for stdin."),
    ],
) -> None:
    """Stores the next version of a template. The same content as the newest one makes none."""
    request = _parsed(to_text(source))
    async with session.scheduler() as client:
        answer = await client.put_template(name, request.variants, default_locale=request.default_locale)
    did = "unchanged" if answer.unchanged else "stored"
    session.output.show(answer, plain(f"{did} {answer.template.name}, version {answer.template.version}"))


def _parsed(text: str) -> PutTemplateRequest:
    try:
        found = json.loads(text)
        return ParseDict(found, PutTemplateRequest()) if isinstance(found, dict) else _refuse()
    except (ValueError, RecursionError, ParseError):
        return _refuse()


def _refuse() -> PutTemplateRequest:
    raise typer.BadParameter("a template is a JSON object with default_locale and variants; see docs/templates.md")


@template.command()
@command()
async def get(session: Session, *, name: NameArgument, version: VersionOption = 0) -> None:
    """Shows a template with its texts. With --json, what `put` takes is in it."""
    async with session.scheduler() as client:
        found = await client.get_template(name, version=version)
    session.output.show_facts(found, _facts(found))


@template.command("list")
@command()
async def list_(session: Session) -> None:
    """Shows all templates, the newest names first."""
    none = True
    async with session.scheduler() as client:
        async for found in client.list_templates():
            none = False
            locales = ", ".join(found.locales)
            session.output.show(
                found, plain(f"{found.name}  {enum_name(found, 'channel')}  version {found.version}  {locales}")
            )
    if none:
        session.output.note("none")


@template.command()
@command()
async def delete(session: Session, *, name: NameArgument) -> None:
    """Erases a template in all its versions. What was accepted with it is sent as it was accepted."""
    async with session.scheduler() as client:
        await client.delete_template(name)
    session.output.show({"name": name}, plain(f"erased {name}"))


@template.command()
@command()
async def render(
    session: Session,
    *,
    name: NameArgument,
    version: VersionOption = 0,
    locale: LocaleOption = "",
    var: VarOption = None,
    variables: VariablesOption = "",
) -> None:
    """Shows what a notification with this template would say. Sends nothing."""
    async with session.scheduler() as client:
        found = await client.render_template(name, to_variables(var, variables), version=version, locale=locale)
    session.output.show_facts(found, _rendered(found))


def _rendered(found: RenderTemplateResponse) -> Iterator[tuple[str, str]]:
    yield from _texts(found, found.WhichOneof("content"))
    yield "locale", found.locale
    yield "version", str(found.version)
    yield "size", _size(found)


def _size(found: RenderTemplateResponse) -> str:
    size = f"{found.size:,} bytes"
    if not found.HasField("sms_size"):
        return size
    sms = found.sms_size
    return f"{size}: {enum_name(sms, 'encoding')}, {sms.units:,} units in {sms.segments:,} segments"


def _facts(found: GetTemplateResponse) -> Iterator[tuple[str, str]]:
    whole = found.template
    yield "name", whole.name
    yield "channel", enum_name(whole, "channel")
    yield "version", f"{whole.version}, {local(whole.create_time)}, {whole.actor}"
    yield "locale", whole.default_locale
    for variant in found.variants:
        for place, text in _texts(variant, variant.WhichOneof("content")):
            yield f"{variant.locale} {place}", text


def _texts(message: Message, content: str | None) -> list[tuple[str, str]]:
    """What a content says, by the names of its fields."""
    if content is None:
        return []
    said: Mapping[str, Any] = to_dict(getattr(message, content))
    texts: list[tuple[str, str]] = []
    for name, part in said.items():
        entries = {name: part} if isinstance(part, str) else {f"{name}.{entry}": text for entry, text in part.items()}
        texts += entries.items()
    return [(name, text) for name, text in texts if text]
