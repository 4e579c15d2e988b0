"""A server over TLS: who is served, with which certificate, and what happens when its files change."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from shared import tls
from shared.database import Database
from shared.process import Process
from shared.settings import ProcessSettings
from tests.certificates import Authority, Pair
from tests.integration.conftest import ANYWHERE

AUTHORITY = Authority()


@dataclass
class Folder:
    """Where a server's certificate is."""

    path: Path

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert_file": self.path / "tls.crt", "tls_key_file": self.path / "tls.key"}

    def put(self, pair: Pair) -> None:
        (self.path / "tls.crt").write_bytes(pair.certificate)
        (self.path / "tls.key").write_bytes(pair.key)

    def put_authority(self, authority: Authority) -> dict[str, Any]:
        (self.path / "ca.crt").write_bytes(authority.pem)
        return self.settings | {"tls_client_ca_file": self.path / "ca.crt"}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.put(AUTHORITY.issue("first"))
    return folder


async def serve(stack: AsyncExitStack, settings: dict[str, Any]) -> int:
    """The port of a process of ours."""
    chosen = ProcessSettings(database_url=SecretStr("postgresql://nowhere"), **ANYWHERE | settings)
    process = Process("test", chosen, stack)
    await process.serve(Database("postgresql://nowhere", name="test"), [])
    return process.port


async def answers(port: int, credentials: grpc.ChannelCredentials | None) -> bool:
    """Whether it serves such a client, which connects anew."""
    address = f"127.0.0.1:{port}"
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.aio.secure_channel(address, credentials, options)
        if credentials
        else grpc.aio.insecure_channel(address, options)
    )
    async with channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
    return True


def trusting(authority: Authority = AUTHORITY, shown: Pair | None = None) -> grpc.ChannelCredentials:
    key, certificate = (shown.key, shown.certificate) if shown else (None, None)
    return grpc.ssl_channel_credentials(authority.pem, key, certificate)


async def shown_name(port: int) -> str:
    """The name in the certificate of the next handshake."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    (name,) = x509.load_pem_x509_certificate(pem.encode()).subject
    return str(name.value)


async def test_only_clients_that_speak_tls_are_served(folder: Folder, stack: AsyncExitStack) -> None:
    port = await serve(stack, folder.settings)
    assert await answers(port, trusting())
    assert not await answers(port, None)
    assert not await answers(port, trusting(Authority())), "the client does not trust it"


async def test_without_a_certificate_it_is_plain_text(stack: AsyncExitStack) -> None:
    port = await serve(stack, {})
    assert await answers(port, None)
    assert not await answers(port, trusting())


async def test_with_authorities_only_clients_with_their_certificate_are_served(
    folder: Folder, stack: AsyncExitStack
) -> None:
    clients = Authority("clients")
    port = await serve(stack, folder.put_authority(clients))
    assert await answers(port, trusting(shown=clients.issue("client")))
    assert not await answers(port, trusting())
    assert not await answers(port, trusting(shown=Authority("clients").issue("client")))
    assert not await answers(port, None)


async def test_a_new_certificate_is_shown_at_the_next_handshake(folder: Folder, stack: AsyncExitStack) -> None:
    port = await serve(stack, folder.settings)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusting()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert await stub.Check(health_pb2.HealthCheckRequest())
        assert await shown_name(port) == "first"
        folder.put(AUTHORITY.issue("second"))
        assert await shown_name(port) == "second"
        assert await stub.Check(health_pb2.HealthCheckRequest()), "an open connection goes on"
    assert await answers(port, trusting())


async def test_new_authorities_are_asked_for_at_the_next_handshake(folder: Folder, stack: AsyncExitStack) -> None:
    old, new = Authority("old"), Authority("new")
    port = await serve(stack, folder.put_authority(old))
    assert await answers(port, trusting(shown=old.issue("client")))
    folder.put_authority(new)
    assert await answers(port, trusting(shown=new.issue("client")))
    assert not await answers(port, trusting(shown=old.issue("client")))


Break = Callable[[Folder], None]


def half(folder: Folder) -> None:
    (folder.path / "tls.crt").write_bytes(AUTHORITY.issue("second").certificate)


def nonsense(folder: Folder) -> None:
    (folder.path / "tls.crt").write_bytes(b"nonsense")


def gone(folder: Folder) -> None:
    (folder.path / "tls.key").unlink()


@pytest.mark.parametrize("spoil", [half, nonsense, gone])
async def test_a_pair_that_is_none_leaves_the_old_one_until_it_is_whole(
    folder: Folder, stack: AsyncExitStack, spoil: Break
) -> None:
    port = await serve(stack, folder.settings)
    with structlog.testing.capture_logs() as logged:
        spoil(folder)
        assert await shown_name(port) == "first"
        assert {line["event"] for line in logged} == {"tls.unusable"}
        folder.put(AUTHORITY.issue("third"))
        assert await shown_name(port) == "third"


def locked(pair: Pair) -> Pair:
    key = serialization.load_pem_private_key(pair.key, None)
    password = serialization.BestAvailableEncryption(b"hunter2")
    return Pair(
        pair.certificate,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, password),
    )


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (Pair(AUTHORITY.issue("a").certificate, AUTHORITY.issue("b").key), "the key is not the certificate's"),
        (Pair(b"", AUTHORITY.issue("a").key), "is no readable PEM"),
        (Pair(AUTHORITY.issue("a").certificate, b""), "is no readable PEM"),
        (locked(AUTHORITY.issue("a")), "is no readable PEM"),
    ],
)
def test_a_pair_that_is_none_is_said_at_the_start(folder: Folder, pair: Pair, problem: str) -> None:
    folder.put(pair)
    with pytest.raises(tls.Unusable, match=problem):
        tls.credentials(tls.Files(folder.path / "tls.crt", folder.path / "tls.key"))
    with pytest.raises(ValueError, match=problem):
        ProcessSettings(database_url=SecretStr("postgresql://nowhere"), **ANYWHERE | folder.settings)


def test_authorities_that_are_none_are_said_at_the_start(folder: Folder) -> None:
    files = folder.put_authority(AUTHORITY)
    files["tls_client_ca_file"].write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is no readable PEM"):
        ProcessSettings(database_url=SecretStr("postgresql://nowhere"), **ANYWHERE | files)
