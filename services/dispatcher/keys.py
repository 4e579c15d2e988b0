"""The keys that endpoints are signed for with, sealed at rest and each bound to its endpoint."""

from uuid import UUID

from shared.vault import Vault


class Keys:
    def __init__(self, secret_key: bytes) -> None:
        self._vault = Vault(secret_key, "webhook secret")

    def seal(self, tenant: str, endpoint_id: UUID, key: bytes) -> bytes:
        return self._vault.seal(key, bound_to=_binding(tenant, endpoint_id))

    def open(self, tenant: str, endpoint_id: UUID, sealed: bytes) -> bytes:
        """Raises SealBroken."""
        return self._vault.open(sealed, bound_to=_binding(tenant, endpoint_id))


def _binding(tenant: str, endpoint_id: UUID) -> bytes:
    return f"{tenant}\0{endpoint_id}".encode()
