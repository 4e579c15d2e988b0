"""The endpoint that the settings name: made at start, and kept as they say."""

from typing import Protocol
from uuid import UUID

import structlog

from services.dispatcher.endpoints import Draft, Endpoint
from services.dispatcher.keys import Keys
from services.dispatcher.store import Configured
from shared.loop import Loop
from shared.vault import SealBroken

log = structlog.get_logger()

TENANT = "default"


class Store(Protocol):
    async def find_configured_endpoint(self, tenant: str) -> Configured | None: ...
    async def update_configured_endpoint(self, endpoint_id: UUID, url: str, sealed: bytes) -> None: ...
    async def new_endpoint_id(self) -> UUID: ...
    async def insert_endpoint(
        self, endpoint_id: UUID, tenant: str, draft: Draft, sealed: bytes, *, configured: bool, most: int | None
    ) -> Endpoint | None: ...


class ConfiguredEndpoint:
    """Any number of processes may do this at once; there is one such endpoint."""

    def __init__(self, store: Store, keys: Keys, *, url: str, key: bytes) -> None:
        self._store = store
        self._keys = keys
        self._url = url
        self._key = key

    def until_done(self) -> Loop:
        """Tries until the database answers: a process starts without it."""
        return Loop("configured endpoint", self._turn)

    async def _turn(self) -> None:
        await self.ensure()

    async def ensure(self) -> UUID:
        """Its id. Disabled because it was gone, it is enabled again: the settings say that it is there."""
        while True:
            if known := await self._store.find_configured_endpoint(TENANT):
                await self._correct(known)
                return known.id
            if made := await self._make():
                log.info("endpoint.configured", endpoint_id=str(made.id))
                return made.id

    async def _make(self) -> Endpoint | None:
        endpoint_id = await self._store.new_endpoint_id()
        sealed = self._keys.seal(TENANT, endpoint_id, self._key)
        return await self._store.insert_endpoint(
            endpoint_id, TENANT, Draft(self._url), sealed, configured=True, most=None
        )

    async def _correct(self, known: Configured) -> None:
        if known.enabled and known.url == self._url and self._has_key(known):
            return
        sealed = self._keys.seal(TENANT, known.id, self._key)
        await self._store.update_configured_endpoint(known.id, self._url, sealed)
        log.info("endpoint.corrected", endpoint_id=str(known.id))

    def _has_key(self, known: Configured) -> bool:
        try:
            return self._keys.open(TENANT, known.id, known.sealed_secret) == self._key
        except SealBroken:  # sealed under another SECRET_KEY
            return False
