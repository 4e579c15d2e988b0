"""Rendering for requests that wait together: versions are read once, and kept ready as long as there is room."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from services.scheduler.contents import Parts
from services.scheduler.locales import fallbacks
from services.scheduler.notification import TemplateUse
from services.scheduler.rendering import Compiled, Failed
from services.scheduler.templates import EMPTY, Rendered, Template, Variants, VersionRef
from shared.clock import tick
from shared.errors import ApiError, ResourceNotFound

MAX_KEPT = 1_000
MAX_KEPT_SOURCE = 16 * 1024 * 1024  # of characters
SLICE = 0.005  # seconds between two turns of the loop: so long, others wait

Key = TypeVar("Key", bound=Hashable)


class Store(Protocol):
    async def read_variants(self, versions: Sequence[VersionRef]) -> Mapping[VersionRef, tuple[str, Variants]]: ...


class Version:
    """A version of a template; each variant is made ready when it is wanted first."""

    def __init__(self, ref: VersionRef, default_locale: str, variants: Variants) -> None:
        self._ref = ref
        self._default_locale = default_locale
        self._variants = variants
        self._compiled: dict[str, Compiled] = {}
        self.size = sum(len(str(parts)) for parts in variants.values())

    def render(self, use: TemplateUse) -> Rendered:
        """Raises TemplateRenderFailed."""
        locale = self.locale_for(use.locale)
        try:
            content = self._ready(locale).render(use.variables)
        except Failed as error:
            raise error.of(use.name, self._ref.version, locale) from None
        return Rendered(content, self._ref.version, locale)

    def locale_for(self, asked: str | None) -> str:
        return next((found for found in fallbacks(asked or "") if found in self._variants), self._default_locale)

    def _ready(self, locale: str) -> Compiled:
        if locale not in self._compiled:
            parts: Parts = {**EMPTY[self._ref.channel], **self._variants[locale]}
            self._compiled[locale] = Compiled(self._ref.channel, parts)
        return self._compiled[locale]


class Renderer:
    """Renders on the loop: the engine keeps the interpreter to itself, so in a thread it would stop the others too."""

    def __init__(self, store: Store, *, max_kept: int = MAX_KEPT, max_source: int = MAX_KEPT_SOURCE) -> None:
        self._store = store
        self._max_kept = max_kept
        self._room = max_source
        self._kept: OrderedDict[VersionRef, Version] = OrderedDict()

    async def render_all(
        self, wanted: Mapping[Key, tuple[VersionRef, TemplateUse]]
    ) -> Mapping[Key, Rendered | ApiError]:
        """What came of each, or why nothing did."""
        versions = await self._versions({ref for ref, _ in wanted.values()})
        answers: dict[Key, Rendered | ApiError] = {}
        pause_at = tick() + SLICE
        for key, (ref, use) in wanted.items():
            answers[key] = _answer(versions.get(ref), use)
            if tick() >= pause_at:
                await asyncio.sleep(0)
                pause_at = tick() + SLICE
        return answers

    async def render(self, template: Template, use: TemplateUse) -> Rendered:
        """Raises TemplateRenderFailed, ResourceNotFound."""
        ref = VersionRef(template.id, template.version, template.channel)
        answer = (await self.render_all({"": (ref, use)}))[""]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def _versions(self, wanted: set[VersionRef]) -> Mapping[VersionRef, Version]:
        """Those that there still are."""
        found = {ref: self._kept[ref] for ref in wanted if ref in self._kept}
        for ref in found:
            self._kept.move_to_end(ref)
        if unknown := wanted - found.keys():
            for ref, (default_locale, variants) in (await self._store.read_variants(list(unknown))).items():
                found[ref] = Version(ref, default_locale, variants)
                self._keep(ref, found[ref])
        return found

    def _keep(self, ref: VersionRef, version: Version) -> None:
        if known := self._kept.pop(ref, None):
            self._room += known.size
        self._kept[ref] = version
        self._room -= version.size
        while self._room < 0 or len(self._kept) > self._max_kept:
            _, oldest = self._kept.popitem(last=False)
            self._room += oldest.size


def _answer(version: Version | None, use: TemplateUse) -> Rendered | ApiError:
    if version is None:
        return ResourceNotFound("template")
    try:
        return version.render(use)
    except ApiError as error:
        return error
