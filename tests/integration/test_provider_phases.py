"""What holds for every provider that speaks HTTP: how far a request came decides what its end means."""

import re
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.worker import spans
from services.worker.outcome import Later
from services.worker.providers import Answer
from tests.certificates import Authority
from tests.http_providers import KINDS, Kind
from tests.pretended import deliver
from tests.raw_http import Do, Step, answer, raw_server
from tests.spans import told
from tests.unit.test_attempt import CLAIM

PATIENT = 30.0
IMPATIENT = 0.5
DEEP = b"[" * 50_000
HUGE = b'{"id": "' + b"x" * 200_000 + b'"}'

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((Do.HANG,), "answer-timeout"),
        ((b"HTTP/1.1 200 OK\r\n", Do.HANG), "answer-timeout"),
        ((Do.CLOSE,), "answer-closed"),
        ((Do.RESET,), "answer-closed"),
        ((b"HTTP/1.1 200 OK\r\n", Do.CLOSE), "answer-closed"),
        ((b"what\r\n\r\n",), "answer-malformed"),
        ((b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000, Do.HANG), "answer-malformed"),
        ((answer(500),), "500"),
        ((answer(502, b"<html>Bad gateway</html>"),), "502"),
        ((answer(504, b""),), "504"),
        ((answer(600),), "600"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_request_without_an_answer_may_have_been_carried_out(
    kind: Kind, steps: tuple[Step, ...], code: str
) -> None:
    async with raw_server(*steps) as server:
        async with kind.make(server.url, IMPATIENT if "timeout" in code else PATIENT) as provider:
            outcome, begun = await deliver(provider, kind.address, kind.content)
        assert (outcome.answer, outcome.code, begun) == (Answer.UNKNOWN, code, True)
        assert len(server.requests) == 1


@each_kind
@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b"{", b"\xff", b'"id"', DEEP, HUGE, b'{"sid": {}, "id": [], "name": null}']
)
async def test_a_yes_that_nobody_can_have_meant_is_none(kind: Kind, body: bytes) -> None:
    async with raw_server(answer(200, body)) as server, kind.make(server.url, PATIENT) as provider:
        outcome, _ = await deliver(provider, kind.address, kind.content)
    assert (outcome.answer, outcome.provider_message_id) == (kind.malformed, None)


@each_kind
@pytest.mark.parametrize("end", [Do.HANG, Do.CLOSE, Do.RESET])
async def test_a_yes_that_is_cut_is_none(kind: Kind, end: Do) -> None:
    cut = answer(200, b'{"sid": "1", "id": "1", "name": "1", "message_id": "1"}')[:-5]
    async with raw_server(cut, end) as server:
        async with kind.make(server.url, IMPATIENT if end is Do.HANG else PATIENT) as provider:
            outcome, _ = await deliver(provider, kind.address, kind.content)
        assert outcome.answer is kind.malformed
        assert len(server.requests) == 1


@each_kind
@pytest.mark.parametrize("body", [b"", b"<html>", HUGE, DEEP, b'{"code": {"a": 1}, "name": [], "error": "x"}'])
async def test_a_refusal_is_one_whatever_its_body(kind: Kind, body: bytes) -> None:
    async with raw_server(answer(400, body)) as server, kind.make(server.url, PATIENT) as provider:
        outcome, _ = await deliver(provider, kind.address, kind.content)
    assert (outcome.answer, outcome.code) == (Answer.PERMANENT_MESSAGE, "400")


@each_kind
async def test_nobody_listens(kind: Kind, unused_tcp_port: int) -> None:
    async with kind.make(f"http://127.0.0.1:{unused_tcp_port}", PATIENT) as provider:
        outcome, begun = await deliver(provider, kind.address, kind.content)
    assert (outcome.answer, begun) == (Answer.TRANSIENT, False)
    assert outcome.code in ("connect-refused", "token-refused")


@each_kind
async def test_a_certificate_that_nobody_vouches_for(kind: Kind, tmp_path: Path) -> None:
    pair = Authority().issue("provider")
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair.pem")
    async with raw_server(answer(200), context=context) as server:
        async with kind.make(server.url, PATIENT) as provider:
            outcome, begun = await deliver(provider, kind.address, kind.content)
        assert (outcome.answer, begun, server.requests) == (Answer.TRANSIENT, False, [])
    assert outcome.code in ("connect-certificate", "token-certificate")


@each_kind
async def test_a_server_that_speaks_no_tls(kind: Kind) -> None:
    async with raw_server(answer(200)) as server:
        async with kind.make(server.url.replace("http:", "https:"), PATIENT) as provider:
            outcome, begun = await deliver(provider, kind.address, kind.content)
        assert (outcome.answer, begun, server.requests) == (Answer.TRANSIENT, False, [])
    assert re.fullmatch("(connect|token)-(tls|closed)", outcome.code or "")


@each_kind
async def test_a_server_that_is_away_may_have_taken_it_unless_the_provider_says_otherwise(kind: Kind) -> None:
    async with raw_server(answer(503, Retry_After="7")) as server, kind.make(server.url, PATIENT) as provider:
        outcome, _ = await deliver(provider, kind.address, kind.content)
    assert (outcome.answer, outcome.code) == (kind.away, "503")


@each_kind
@pytest.mark.parametrize("asked", ["7", "", "soon", "-5", "0", "9" * 500])
async def test_throttled_for_as_long_as_it_says(kind: Kind, asked: str) -> None:
    said = answer(429, Retry_After=asked) if asked else answer(429)
    async with raw_server(said) as server, kind.make(server.url, PATIENT) as provider:
        outcome, _ = await deliver(provider, kind.address, kind.content)
    assert (outcome.answer, outcome.code) == (Answer.THROTTLED, "429")
    asked_for = {"7": timedelta(seconds=7), "9" * 500: timedelta(days=1)}
    assert outcome.not_before == asked_for.get(asked, kind.throttled_rest)


@each_kind
@pytest.mark.parametrize("theirs", [datetime(2030, 6, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC), None])
async def test_throttled_until_a_date_that_is_the_providers_own(kind: Kind, theirs: datetime | None) -> None:
    until = format_datetime((theirs or datetime.now(UTC)) + timedelta(hours=6), usegmt=True)
    date = format_datetime(theirs, usegmt=True) if theirs else ""
    said = answer(429, Retry_After=until, Date=date)
    async with raw_server(said) as server, kind.make(server.url, PATIENT) as provider:
        outcome, _ = await deliver(provider, kind.address, kind.content)
    assert outcome.answer is Answer.THROTTLED
    assert outcome.not_before == (timedelta(hours=6) if theirs else kind.throttled_rest)


@each_kind
async def test_a_redirect_is_not_followed(kind: Kind) -> None:
    async with raw_server(answer(200)) as other, raw_server(answer(307, Location=other.url)) as server:
        async with kind.make(server.url, PATIENT) as provider:
            outcome, _ = await deliver(provider, kind.address, kind.content)
        assert (outcome.answer, outcome.code) == (Answer.MISCONFIGURED, "307")
        assert (len(server.requests), len(other.requests)) == (1, 0)


@each_kind
async def test_a_connection_that_was_closed_while_it_rested_is_not_tried_twice(kind: Kind) -> None:
    """The library must not send again by itself, whether or not it noticed."""
    kept = answer(400, Connection="keep-alive")
    async with raw_server(kept, Do.CLOSE) as server, kind.make(server.url, PATIENT) as provider:
        for number in (1, 2, 3):
            await deliver(provider, kind.address, kind.content)
            assert len(server.requests) <= number


@each_kind
async def test_a_proxy_that_the_environment_names_sees_nothing(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(answer(200)) as proxy, raw_server(answer(400)) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with kind.make(server.url, PATIENT) as provider:
            await deliver(provider, kind.address, kind.content)
        assert (len(server.requests), proxy.requests) == (1, [])


@each_kind
async def test_what_goes_wrong_names_no_secret_content_or_address(
    kind: Kind, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor what a provider says, in a code of its own or in words."""
    words = b'{"code": "mk-secret mk-body", "name": "mk-body", "message": "mk-words", "error": {"status": "mk-body"}}'
    with told() as found, capture_logs() as lines:
        for steps in ([answer(400, words)], [answer(500, words)], [answer(429, b"mk-words")], [Do.CLOSE]):
            async with raw_server(*steps) as server, kind.make(server.url, PATIENT) as provider:
                outcome, _ = await deliver(provider, kind.address, kind.content)
                assert "mk-" not in repr(provider)
                assert len(outcome.code or "") <= 64
                with spans.deliver(CLAIM) as span:
                    spans.judged(span, Later(delay=timedelta(), kind="ATTEMPT_FAILED", code=outcome.code), kind.name)
    said = [*map(repr, lines), *found.lines()]
    assert not [line for line in said if "mk-" in line or kind.address in line]
    assert kind.address not in capsys.readouterr().out + caplog.text
