"""Posting, against receivers that behave as badly as receivers do."""

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.dispatcher.client import MAX_ANSWER, Client, Post
from services.dispatcher.egress import Egress, parse_networks
from services.dispatcher.outcome import Answer, ErrorClass
from tests.integration.test_dispatcher_rig import Receiver, answer

LOOPBACK = Egress(parse_networks("127.0.0.1/32"))
CLOSED = Egress()
PATIENCE = 5.0
IMPATIENCE = 0.3
NOW = datetime(2025, 11, 30, 10, 53, 20, tzinfo=UTC)

Writes = Callable[[asyncio.StreamWriter], Awaitable[None]]


def to(url: str, body: bytes = b"{}", **headers: str) -> Post:
    return Post(url, headers, body, NOW)


@asynccontextmanager
async def raw(write: Writes, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A receiver that reads one request and then writes whatever it likes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await write(writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def say(*parts: bytes) -> Writes:
    async def write(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)

    return write


def say_and_hang(*parts: bytes) -> Writes:
    async def write(writer: asyncio.StreamWriter) -> None:
        await say(*parts)(writer)
        await writer.drain()
        await writer.wait_closed() if writer.is_closing() else await asyncio.get_running_loop().create_future()

    return write


async def post_once(post: Post, *, egress: Egress = LOOPBACK, timeout: float = PATIENCE) -> Answer:  # noqa: ASYNC109
    async with Client(egress, timeout=timeout) as client:
        return await client.post(post)


async def test_the_exact_bytes_go_out_with_the_headers_they_were_signed_with() -> None:
    body = '{"b": 1e308, "a":"\u2028é"}'.encode()
    async with Receiver() as receiver:
        post = to(receiver.url, body, **{"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,x"})
        assert await post_once(post) == Answer(204)
    ((headers, received),) = receiver.posts
    assert received == body
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent.pop("host").startswith("127.0.0.1:")
    assert sent == {
        "webhook-id": "a",
        "webhook-timestamp": "1",
        "webhook-signature": "v1,x",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "NotifyQueue-Webhooks/1",
    }


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with Receiver() as target, Receiver(answer(status, location=target.url)) as receiver:
        assert await post_once(to(receiver.url)) == Answer(status, ErrorClass.STATUS)
        assert (len(receiver.posts), len(target.posts)) == (1, 0)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_2xx_is_success(status: int) -> None:
    async with Receiver(answer(status)) as receiver:
        assert await post_once(to(receiver.url)) == Answer(status)


async def test_what_a_failed_answer_asks_for_is_passed_on() -> None:
    async with Receiver(answer(503, retry_after="120")) as receiver:
        expected = Answer(503, ErrorClass.STATUS, timedelta(minutes=2))
        assert await post_once(to(receiver.url)) == expected


OK = b"HTTP/1.1 200 OK\r\n"
SUCCESSES = {
    "no length, then closed": say(OK + b"\r\n"),
    "cut": say(OK + b"content-length: 100\r\n\r\n", b"half"),
    "not text": say(OK + b"content-length: 3\r\ncontent-type: text/plain; charset=nonsense\r\n\r\n", b"\xff\xfe\x00"),
    "not compressed as it says": say(OK + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n", b"nope"),
    "a header that is not ASCII": say(OK + b"x: caf\xe9\r\nretry-after: \xe9\xff\r\ncontent-length: 0\r\n\r\n"),
    "a cookie": say(OK + b"set-cookie: \xff=\x01; expires=never\r\ncontent-length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("write", SUCCESSES.values(), ids=SUCCESSES.keys())
async def test_the_status_decides_whatever_comes_after_it(write: Writes) -> None:
    async with raw(write) as url:
        assert await post_once(to(url)) == Answer(200)


async def test_an_answer_that_never_ends_in_time_is_still_a_success() -> None:
    async with raw(say_and_hang(OK + b"content-length: 100\r\n\r\n", b"slow")) as url:
        assert await post_once(to(url), timeout=IMPATIENCE) == Answer(200)


async def test_no_more_of_an_answer_is_read_than_its_bound() -> None:
    """Fifty megabytes, or as many as are taken."""
    written = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(OK + b"\r\n")
        for _ in range(800):
            writer.write(bytes(65_536))
            await writer.drain()
            written += 65_536

    tracemalloc.start()
    try:
        async with raw(endless) as url:
            assert await post_once(to(url)) == Answer(200)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written < 50 * 1024 * 1024
    assert peak < 100 * MAX_ANSWER + 10 * 1024 * 1024


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


FAILURES = {
    "silence": (say_and_hang(), ErrorClass.TIMEOUT),
    "half a header": (say_and_hang(b"HTTP/1.1 200 OK\r\nx: "), ErrorClass.TIMEOUT),
    "hangs up": (hang_up, ErrorClass.CONNECTION),
    "closes": (say(), ErrorClass.CONNECTION),
    "another protocol": (say(b"SSH-2.0-OpenSSH_9.6\r\n"), ErrorClass.PROTOCOL),
    "chunks that are none": (say(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nwhat\r\n"), ErrorClass.PROTOCOL),
    "endless headers": (say(OK + b"".join(b"x%d: y\r\n" % n for n in range(100_000))), ErrorClass.PROTOCOL),
    "a header without an end": (say(OK + b"x: " + b"y" * 1_000_000), ErrorClass.PROTOCOL),
}


@pytest.mark.parametrize(("write", "error"), FAILURES.values(), ids=FAILURES.keys())
async def test_whatever_goes_wrong_before_the_status_is_an_answer(write: Writes, error: ErrorClass) -> None:
    async with raw(write) as url:
        assert await post_once(to(url), timeout=IMPATIENCE) == Answer(error=error)


async def test_nobody_there_is_a_failed_connection() -> None:
    async with Receiver() as receiver:
        pass
    assert await post_once(to(receiver.url)) == Answer(error=ErrorClass.CONNECTION)


async def test_a_name_that_nobody_knows_is_a_failed_lookup() -> None:
    assert await post_once(to("http://unknown.invalid/")) == Answer(error=ErrorClass.DNS)


@pytest.mark.parametrize(
    "url",
    ["", "nowhere", "ftp://example.com/", "http://", "http://exa mple/", "http://" + "a" * 300, "http://h:99999/"],
)
async def test_a_url_that_is_none_fails_that_post_alone(url: str) -> None:
    assert (await post_once(to(url))).error in (ErrorClass.ENDPOINT_INVALID, ErrorClass.DNS)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "①②⑦.0.0.1", "127。0.0.1",
        "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::7f00:1]", "[::ffff:0:7f00:1]", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]", "0.0.0.1", "[::]", "169.254.169.254", "168.63.129.16", "10.0.0.1", "[fe80::1]",
    ],
)  # fmt: skip
async def test_a_forbidden_address_is_never_dialled_however_it_is_written(host: str) -> None:
    async with Receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        got = await post_once(to(f"http://{host}:{port}"), egress=CLOSED)
        assert got.error in (ErrorClass.ADDRESS_BLOCKED, ErrorClass.ENDPOINT_INVALID)
        assert receiver.posts == []
    if host in ("127.0.0.1", "localhost", "[::1]", "0x7f000001", "169.254.169.254"):
        assert got == Answer(error=ErrorClass.ADDRESS_BLOCKED)


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert await post_once(to(receiver.url)) == Answer(204)
        assert (len(receiver.posts), proxy.posts) == (1, [])


async def test_cookies_are_not_kept() -> None:
    async with Receiver(answer(200, set_cookie="a=b")) as receiver, Client(LOOPBACK, timeout=PATIENCE) as client:
        for _ in range(2):
            assert await client.post(to(receiver.url)) == Answer(200)
    assert all("Cookie" not in headers for headers, _ in receiver.posts)


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context = self_signed(tmp_path)
    async with raw(say(OK + b"content-length: 0\r\n\r\n"), context) as url:
        assert await post_once(to(url)) == Answer(error=ErrorClass.TLS)


async def test_plain_text_where_tls_was_expected_is_a_tls_fault() -> None:
    async with raw(say(OK)) as url:
        got = await post_once(to(url.replace("http:", "https:")), timeout=IMPATIENCE)
        assert got.error in (ErrorClass.TLS, ErrorClass.CONNECTION, ErrorClass.TIMEOUT)


async def test_deliveries_to_one_host_share_connections() -> None:
    made = 0

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        while request := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(2)
            assert request.startswith(b"POST")
            writer.write(OK + b"content-length: 2\r\n\r\nok")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await respond(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
        client = await stack.enter_async_context(Client(LOOPBACK, timeout=PATIENCE))
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for _ in range(50):
            assert await client.post(to(url)) == Answer(200)
    assert made == 1


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "both.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
