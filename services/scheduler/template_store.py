"""The statements of templates, on their own and in transactions: one method each, named like its file in sql/."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from services.scheduler.store import sql
from services.scheduler.templates import Draft, Known, Template, Variants, VersionRef
from shared.database import Database, Executor, columns
from shared.paging import Page


class TemplateStatements:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def lock_templates(self, tenant: str) -> None:
        await self._executor.fetch(sql["lock_templates"], tenant)

    async def count_templates(self, tenant: str) -> tuple[int, int | None]:
        """And how many it may have, where that is its own number."""
        rows = await self._executor.fetch(sql["count_templates"], tenant)
        return rows[0]["count"], rows[0]["quota"]

    async def read_template(self, tenant: str, name: str, version: int | None) -> Known | None:
        rows = await self._executor.fetch(sql["read_template"], tenant, name, version)
        if not rows:
            return None
        row = rows[0]
        template = _template(row, json.loads(row["variants"])) if row["variants"] else None
        return Known(row["channel"], row["erased"], row["versions"], template)

    async def write_template(self, tenant: str, draft: Draft, actor: str) -> Template:
        args = (tenant, draft.name, draft.channel, draft.default_locale, json.dumps(draft.variants), actor)
        rows = await self._executor.fetch(sql["write_template"], *args)
        return Template(
            **rows[0],
            name=draft.name,
            channel=draft.channel,
            default_locale=draft.default_locale,
            locales=sorted(draft.variants),
            actor=actor,
            variants=draft.variants,
        )

    async def erase_template(self, tenant: str, name: str) -> bool:
        return bool(await self._executor.fetch(sql["erase_template"], tenant, name))

    async def list_templates(self, tenant: str, page: Page) -> Sequence[Template]:
        rows = await self._executor.fetch(sql["list_templates"], tenant, page.before, page.size)
        return [_template(row, {}) for row in rows]

    async def read_variants(self, versions: Sequence[VersionRef]) -> Mapping[VersionRef, tuple[str, Variants]]:
        refs = {(ref.template, ref.version): ref for ref in versions}
        rows = await self._executor.fetch(sql["read_variants"], *columns(sorted(refs), 2))
        return {
            refs[row["template_id"], row["version"]]: (row["default_locale"], json.loads(row["variants"]))
            for row in rows
        }


class TemplateStore(TemplateStatements):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[TemplateStatements]:
        async with self._database.transaction() as connection:
            yield TemplateStatements(connection)


def _template(row: Any, variants: Variants) -> Template:
    return Template(
        id=row["id"],
        name=row["name"],
        channel=row["channel"],
        version=row["version"],
        default_locale=row["default_locale"],
        locales=sorted(variants) if variants else sorted(row["locales"]),
        actor=row["actor"],
        created_at=row["created_at"],
        variants=variants,
    )
