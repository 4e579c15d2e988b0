"""What may be named as an endpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.egress import Egress, parse_networks
from services.dispatcher.endpoints import EVENT_TYPES, Draft, check, url_problem
from shared.errors import RequestInvalid

CLOSED = Egress()

RIGHT = [
    "https://example.com",
    "https://example.com/hook?tenant=7&x=%2F",
    "http://EXAMPLE.com:8080/a/b",
    "https://bücher.example/",
    "https://xn--bcher-kva.example./",
    "https://a_b.example/@me",
    "https://example.com?to=me@example.com",
    "https://1.1.1.1/",
    "https://[2606:4700::1111]:8443/",
    "https://example.com/" + "a" * 2028,
]
WRONG = {
    "": "is required",
    "https://example.com/" + "a" * 2029: "must have at most 2048 characters",
    "example.com": "must begin with http:// or https://",
    "/hook": "must begin with http:// or https://",
    "ftp://example.com/": "must begin with http:// or https://",
    "file:///etc/passwd": "must begin with http:// or https://",
    "gopher://example.com/": "must begin with http:// or https://",
    "https://": "must have a host",
    "https:///hook": "must have a host",
    "https:example.com": "must have a host",
    "https://user@example.com/": "must not contain a user or password",
    "https://user:word@example.com/": "must not contain a user or password",
    "https://:word@example.com/": "must not contain a user or password",
    "https://@example.com/": "must not contain a user or password",
    "https://example.com/#part": "must not have a fragment",
    "https://example.com/#": "must not have a fragment",
    "https://example.com:0/": "must have a port from 1 to 65535",
    "https://example.com:65536/": "is not a URL",
    "https://example.com:http/": "is not a URL",
    "https://exam ple.com/": "must not contain spaces, control characters or backslashes",
    "https://example.com/\r\nx": "must not contain spaces, control characters or backslashes",
    "\thttps://example.com/": "must not contain spaces, control characters or backslashes",
    "https://example.com/\\..": "must not contain spaces, control characters or backslashes",
    "https://example..com/": "must have a host",
    "https://-example.com/": "must have a host",
    "https://" + "a" * 64 + ".example/": "must have a host",
    "https://" + "a." * 127 + "example/": "must have a host",
    "https://%65xample.com/": "must have a host",
    "https://[::1": "is not a URL",
}
BLOCKED = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "①②⑦.0.0.1", "127。0.0.1",
    "\uff11\uff12\uff17.0.0.1", "0", "10.0.0.1", "169.254.169.254", "168.63.129.16", "[::1]", "[::ffff:127.0.0.1]",
    "[::7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fd00::1]", "[fe80::1]", "[::]",
]  # fmt: skip


@pytest.mark.parametrize("url", RIGHT)
def test_a_right_url_is_accepted(url: str) -> None:
    assert url_problem(url, CLOSED) is None


@pytest.mark.parametrize(("url", "problem"), WRONG.items())
def test_a_wrong_url_is_refused_and_its_problem_named(url: str, problem: str) -> None:
    assert url_problem(url, CLOSED) == problem


@pytest.mark.parametrize("host", BLOCKED)
def test_a_forbidden_address_is_no_endpoint_in_any_spelling(host: str) -> None:
    assert url_problem(f"https://{host}/", CLOSED) == "must not lead to an address that webhooks may not go to"


def test_what_the_installation_allows_may_be_an_endpoint() -> None:
    assert url_problem("http://127.0.0.1:8080/", Egress(parse_networks("127.0.0.1/32"))) is None


@given(url=st.text() | st.text().map(lambda text: f"https://{text}") | st.text().map(lambda text: f"http://h/{text}"))
def test_no_text_makes_the_check_raise(url: str) -> None:
    problem = url_problem(url, CLOSED)
    assert problem is None or problem


def test_every_fault_is_named_at_once_with_its_path() -> None:
    draft = Draft("nowhere", ["notification.sent", "notification.lost", "sent"], "x" * 256)
    with pytest.raises(RequestInvalid) as refused:
        check(draft, CLOSED)
    assert [violation.field for violation in refused.value.violations] == [
        "url", "event_types[1]", "event_types[2]", "description",
    ]  # fmt: skip
    assert "nowhere" not in str(refused.value)


def test_repeated_event_types_are_kept_once_in_their_order() -> None:
    types = ["notification.sent", "notification.failed", "notification.sent"]
    assert list(check(Draft("https://example.com/", types), CLOSED).event_types) == types[:2]


def test_every_terminal_status_has_its_event_type() -> None:
    assert len(check(Draft("https://example.com/", sorted(EVENT_TYPES)), CLOSED).event_types) == 6
