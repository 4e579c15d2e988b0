"""Templates: what may be kept, what a request may ask of them, and the versions that a name goes through."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from services.scheduler import contents, rendering
from services.scheduler.contents import CHANNELS
from services.scheduler.faults import CONTROLS, Faults
from services.scheduler.locales import canonical_locale
from services.scheduler.notification import TemplateUse
from shared.errors import QuotaExceeded, RequestInvalid, ResourceNotFound, Violation
from shared.paging import Page

MAX_TEMPLATES = 1_000  # of a tenant without a quota of its own
MAX_VERSIONS = 1_000  # of a template
MAX_VARIANTS = 20
MAX_NAME = 128
MAX_VERSION = 2**31 - 1
MAX_SOURCE = 64 * 1024  # of bytes, as much as a mail may have

NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")

LINES = frozenset({"subject", "sender", "reply_to", "headers", "title"})

# The fields of each channel's content, as they are when nothing is said. A test compares them with the contract.
EMPTY: Mapping[str, contents.Parts] = {
    "EMAIL": {"subject": "", "text": "", "html": "", "sender": "", "reply_to": "", "headers": {}},
    "SMS": {"text": ""},
    "PUSH": {"title": "", "body": "", "data": {}},
}
# What stands for a text that is known only once it is rendered.
STAND_IN = {"sender": "a@example.com", "reply_to": "a@example.com"}

Variants = Mapping[str, contents.Parts]
"""By locale."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a request asks for, as it came."""

    name: str
    version: int
    channel: str | None
    locale: str
    variables_json: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VariantDraft:
    """What a template shall say in one locale, as it came. `content` names the alternative that was chosen."""

    locale: str
    content: str | None
    parts: contents.Parts = field(repr=False)


@dataclass(frozen=True, slots=True)
class Draft:
    """A version that may be stored."""

    name: str
    channel: str
    default_locale: str
    variants: Variants = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A version of a template, as it is stored."""

    id: UUID
    name: str
    channel: str
    version: int
    default_locale: str
    locales: Sequence[str]
    actor: str
    created_at: datetime
    variants: Variants = field(default_factory=dict, repr=False)
    """Not in lists."""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is under a name."""

    channel: str
    erased: bool
    versions: int
    template: Template | None
    """The version that was asked for; None: there is none."""


@dataclass(frozen=True, slots=True)
class VersionRef:
    """Which version of which template, for ever."""

    template: UUID
    version: int
    channel: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """What came of a template."""

    content: Mapping[str, object] = field(repr=False)
    version: int
    locale: str


class Statements(Protocol):
    async def lock_templates(self, tenant: str) -> None: ...
    async def count_templates(self, tenant: str) -> tuple[int, int | None]: ...
    async def read_template(self, tenant: str, name: str, version: int | None) -> Known | None: ...
    async def write_template(self, tenant: str, draft: Draft, actor: str) -> Template: ...
    async def erase_template(self, tenant: str, name: str) -> bool: ...


class Store(Statements, Protocol):
    async def list_templates(self, tenant: str, page: Page) -> Sequence[Template]: ...
    def transaction(self) -> AbstractAsyncContextManager[Statements]: ...


def used(faults: Faults, use: Use, prefix: str = "template.", *, name_field: str = "template") -> TemplateUse:
    """What a request asks of a template, in canonical form."""
    _check_name(faults, f"{prefix}{name_field}", use.name)
    version_of(faults, f"{prefix}version", use.version)
    locale = faults.canonical(f"{prefix}locale", use.locale, canonical_locale) if use.locale else None
    variables = "{}"
    try:
        variables = rendering.canonical_variables(use.variables_json)
    except rendering.VariablesInvalid as error:
        faults.add(f"{prefix}variables_json", str(error))
    return TemplateUse(use.name, use.version or None, locale, variables)


def version_of(faults: Faults, name: str, version: int) -> None:
    if version < 0:
        faults.add(name, "must be from 1, or 0 for the newest")


def named(name: str, version: int = 0) -> str:
    """Raises RequestInvalid."""
    faults = Faults()
    _check_name(faults, "name", name)
    version_of(faults, "version", version)
    faults.raise_any()
    return name


def _check_name(faults: Faults, field_: str, name: str) -> None:
    faults.length(field_, name, MAX_NAME, required=True)
    if name and len(name) <= MAX_NAME and not NAME.fullmatch(name):
        faults.add(field_, "must have letters, digits, and not at its beginning . _ - only")


def check(name: str, default_locale: str, variants: Sequence[VariantDraft]) -> Draft:
    """Raises RequestInvalid with everything that is wrong."""
    faults = Faults()
    _check_name(faults, "name", name)
    default = _locale(faults, "default_locale", default_locale)
    if not 1 <= len(variants) <= MAX_VARIANTS:
        faults.add("variants", f"must have 1 to {MAX_VARIANTS} entries")
    checked: dict[str, contents.Parts] = {}
    for number, variant in enumerate(variants[:MAX_VARIANTS]):
        place = f"variants[{number}]"
        locale = _locale(faults, f"{place}.locale", variant.locale)
        if locale in checked:
            faults.add(f"{place}.locale", "is there twice")
        checked[locale] = variant.parts
        _check_variant(faults, place, variant)
    channels = {CHANNELS[variant.content] for variant in variants if variant.content}
    if len(channels) > 1:
        faults.add("variants", "must be of one channel")
    if default and variants and default not in checked:
        faults.add("default_locale", "must be the locale of a variant")
    faults.raise_any()
    return Draft(name, channels.pop(), default, checked)


def _locale(faults: Faults, name: str, text: str) -> str:
    if not text:
        faults.add(name, "is required")
        return ""
    return faults.canonical(name, text, canonical_locale)


def _check_variant(faults: Faults, place: str, variant: VariantDraft) -> None:
    if variant.content is None:
        faults.add(f"{place}.content", "is required")
        return
    channel = CHANNELS[variant.content]
    found = Faults()
    size = 0
    for field_, part in variant.parts.items():
        sources = [part] if isinstance(part, str) else [*part, *part.values()]
        size += sum(len(source.encode()) for source in sources)
        if field_ in LINES and any("{" in source and CONTROLS.search(source) for source in sources):
            found.add(f"{variant.content}.{field_}", "must be one line without control characters")
    if size > MAX_SOURCE:
        found.add(variant.content, f"has {size} bytes, more than {MAX_SOURCE}")
    else:
        list(contents.RULES[channel](found, _with_stand_ins(variant.parts)))
        found.found += rendering.problems(channel, variant.parts)
    for fault in found.found:
        faults.add(f"{place}.{fault.field}", fault.problem)


def _with_stand_ins(parts: contents.Parts) -> contents.Parts:
    """What is the same whatever the variables are is judged as it is."""
    return {name: _stand_in(name, part) for name, part in parts.items()}


def _stand_in(name: str, part: str | Mapping[str, str]) -> str | Mapping[str, str]:
    if isinstance(part, str):
        return STAND_IN.get(name, "x") if "{" in part else part
    return {entry: "x" if "{" in source else source for entry, source in part.items()}


class Catalogue:
    """A tenant's templates. Whoever changes them is alone, so versions are consecutive and quotas are exact."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, tenant: str, draft: Draft, actor: str) -> tuple[Template, bool]:
        """The newest version, and whether it was the newest before. Raises RequestInvalid, QuotaExceeded."""
        async with self._store.transaction() as store:
            await store.lock_templates(tenant)
            known = await store.read_template(tenant, draft.name, None)
            if known is None or known.erased:
                count, quota = await store.count_templates(tenant)
                if count >= (quota or MAX_TEMPLATES):
                    raise QuotaExceeded("template")
            elif known.channel != draft.channel:
                raise RequestInvalid([Violation("variants", f"must be for {known.channel}, as the template is")])
            elif (newest := known.template) and _says(newest, draft):
                return newest, True
            elif known.versions >= MAX_VERSIONS:
                raise QuotaExceeded("version of the template")
            return await store.write_template(tenant, draft, actor), False

    async def get(self, tenant: str, name: str, version: int | None) -> Template:
        """Raises ResourceNotFound."""
        known = await self._store.read_template(tenant, name, version)
        if known is None or known.template is None:
            raise ResourceNotFound("template")
        return known.template

    async def list(self, tenant: str, page: Page) -> Sequence[Template]:
        return await self._store.list_templates(tenant, page)

    async def erase(self, tenant: str, name: str) -> None:
        """Raises ResourceNotFound."""
        async with self._store.transaction() as store:
            await store.lock_templates(tenant)
            if not await store.erase_template(tenant, name):
                raise ResourceNotFound("template")


def _says(template: Template, draft: Draft) -> bool:
    return (template.default_locale, template.variants) == (draft.default_locale, draft.variants)
