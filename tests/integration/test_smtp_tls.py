"""The mail provider over TLS, with credentials, against a server that has both."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.worker.providers import Answer
from services.worker.providers.smtp import Smtp, SmtpSettings, Tls
from tests.smtp_server import deliver

USER, PASSWORD = b"notify", b"correct horse"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine with its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


class Server:
    """One that insists on TLS and on a password."""

    def __init__(self, certificate: Path, *, implicit: bool = False, **options: Any) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self._options = options if implicit else {"tls_context": self.context, "require_starttls": True} | options
        self._implicit = implicit
        self._open: list[SMTP] = []
        self.bodies: list[bytes] = []
        self.mechanisms: list[str] = []

    async def handle_DATA(self, server: SMTP, peer: object, envelope: Envelope) -> str:
        assert isinstance(envelope.original_content, bytes)
        self.bodies.append(envelope.original_content)
        return "250 2.0.0 Ok"

    def authenticate(self, server: SMTP, peer: object, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        self.mechanisms.append(mechanism)
        return AuthResult(success=data == LoginPassword(USER, PASSWORD), handled=False)

    def make(self) -> SMTP:
        protocol = SMTP(
            self,
            authenticator=self.authenticate,
            # aiosmtpd does not know that a connection is secure from its first byte.
            auth_required=not self._implicit,
            auth_require_tls=not self._implicit,
            hostname="test",
            loop=asyncio.get_running_loop(),
            **self._options,
        )
        self._open.append(protocol)
        return protocol

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        context = self.context if self._implicit else None
        server = await asyncio.get_running_loop().create_server(self.make, "127.0.0.1", 0, ssl=context)
        yield server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()


Settings = Callable[..., SmtpSettings]


@pytest.fixture
def settings(certificate: Path) -> Settings:
    def settings(port: int, **changes: Any) -> SmtpSettings:
        chosen: dict[str, Any] = {
            "ca_file": certificate,
            "username": USER.decode(),
            "password": PASSWORD.decode(),
        } | changes
        return SmtpSettings(host="127.0.0.1", port=port, sender="notify@example.com", **chosen)

    return settings


LARGE = {"subject": "s", "text": ("x" * 70 + "\n") * 20_000}


@pytest.mark.parametrize("implicit", [False, True])
async def test_delivers(certificate: Path, settings: Settings, implicit: bool) -> None:
    server = Server(certificate, implicit=implicit)
    tls = Tls.TLS if implicit else Tls.STARTTLS
    async with server.listening() as port, Smtp(settings(port, tls=tls)) as smtp:
        outcomes = [(await deliver(smtp, content=LARGE))[0] for _ in range(3)]
    assert {outcome.answer for outcome in outcomes} == {Answer.ACCEPTED}
    assert (len(server.bodies), server.mechanisms) == (3, ["PLAIN"])


async def test_authenticates_with_login_where_that_is_offered(certificate: Path, settings: Settings) -> None:
    server = Server(certificate, auth_exclude_mechanism=["PLAIN"])
    async with server.listening() as port, Smtp(settings(port)) as smtp:
        outcome, _ = await deliver(smtp)
    assert (outcome.answer, server.mechanisms) == (Answer.ACCEPTED, ["LOGIN"])


async def test_wrong_password(certificate: Path, settings: Settings) -> None:
    server = Server(certificate)
    async with server.listening() as port, Smtp(settings(port, password="wrong")) as smtp:
        outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.MISCONFIGURED, "535-5.7.8", False)
    assert server.mechanisms == ["PLAIN"]


@pytest.mark.parametrize(("tls", "code"), [(Tls.STARTTLS, "tls-certificate"), (Tls.TLS, "connect-certificate")])
async def test_certificate_of_somebody_unknown(certificate: Path, settings: Settings, tls: Tls, code: str) -> None:
    server = Server(certificate, implicit=tls is Tls.TLS)
    async with server.listening() as port, Smtp(settings(port, tls=tls, ca_file=None)) as smtp:
        outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.TRANSIENT, code, False)
    assert server.mechanisms == []


async def test_server_insists_on_tls(certificate: Path, settings: Settings) -> None:
    server = Server(certificate)
    changes = {"tls": Tls.NONE, "username": "", "password": "", "ca_file": None}
    async with server.listening() as port, Smtp(settings(port, **changes)) as smtp:
        outcome, begun = await deliver(smtp)
    assert (outcome.answer, outcome.code, begun) == (Answer.MISCONFIGURED, "530", False)
