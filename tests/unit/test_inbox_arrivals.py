"""What the inbox page shows of each thing: as it is, whatever it is, and with nothing that leads anywhere."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import arrivals
from sandbox.viewer import _moment


def mail(raw: bytes, html: str | None = None) -> dict[str, Any]:
    return arrivals.mail(
        {"id": 7, "address": "anna@example.org", "subject": "s", "text": "t", "html": html, "raw": raw, "copies": 2}
    )


def test_of_a_mail_nothing_is_left_that_loads_runs_or_leads_anywhere() -> None:
    html, links = arrivals.rendition(
        "<style>p { color: red }</style><p style='color: blue' onclick='run()'>Hi <a href='https://a.example/'>there</a>"
        "<a href='javascript:run()'>or</a><img src='https://a.example/x.png' alt='a picture'>"
        "<img src='data:image/png;base64,AA=='><link rel='preconnect' href='https://b.example'><script>run()</script>"
        "<meta http-equiv='refresh' content='0;url=https://b.example'><base href='//c'><form action='//c'>"
    )
    assert html == (
        '<style>p { color: red }</style><p style="color: blue">Hi <a>there</a><a>or</a><img alt="a picture">'
        '<img src="data:image/png;base64,AA=="></p>'
    )
    assert links == ["https://a.example/"]


def test_a_mail_of_resend_shows_what_it_was_asked_for() -> None:
    asked = {"from": "The Shop <s@example.com>", "to": ["anna@example.org"], "headers": {"List-Unsubscribe": "<u>"}}
    shown = mail(json.dumps(asked).encode())
    expected = [("From", asked["from"]), ("To", "anna@example.org"), ("List-Unsubscribe", "<u>")]
    assert (shown["facts"], shown["asked"][0]) == (expected, "resend")


def test_a_second_copy_of_a_mail_is_told() -> None:
    assert mail(b"Subject: s\r\n\r\nt")["warning"] == "2 mails have this delivery key"


@pytest.mark.parametrize("text", ["short", "long " * 40, "für " * 30])
def test_a_text_message_shows_its_segments(text: str) -> None:
    content = {"from": "+15005550006", "text": text}
    row = {
        "server": "twilio",
        "address": "+44",
        "content": content,
        "taken_as": "SM1",
        "replaces": None,
        "deliveries": 1,
    }
    facts = dict(arrivals.message(row)["facts"])
    assert facts["Segments"].startswith("2 of GSM_7" if len(text) > 160 else "1 of GSM_7")


@pytest.mark.parametrize(
    "body", ["", "nonsense", "[]", "7", '{"type": 7, "data": []}', '{"data": {"channel": {}}}', "[" * 4000]
)
def test_a_webhook_of_anybody_is_shown(body: str) -> None:
    row = {"name": "up", "webhook_id": "", "body": body, "verified": None, "answers": [0, 204]}
    assert dict(arrivals.webhook(row)["facts"])["Answered"] == "none, 204"
    assert arrivals.line({"kind": "webhook", "title": "", "preview": body})["title"]


def test_a_mail_that_begins_as_json_and_goes_too_deep_is_shown() -> None:
    assert mail(b'{"to": ' + b"[" * 4000)["asked"][0] == "smtp"


@settings(max_examples=40)
@given(st.binary(max_size=300))
def test_whatever_a_mail_is_it_can_be_told_as_json(raw: bytes) -> None:
    for whole in (raw, b"From: " + raw, b"Content-Type: " + raw, b"Subject: =?utf-8?q?" + raw, b'{"to": ' + raw):
        json.dumps(mail(whole)).encode()


@pytest.mark.parametrize("before", ["", "yesterday", "2026-01-01T00:00:00~mail-1", "2026-01-01T00:00:00+00:00"])
def test_the_end_of_a_page_that_is_none_is_refused(before: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|end of a page"):
        _moment(before)


def test_the_end_of_a_page_is_a_time_and_a_ref() -> None:
    assert _moment("2026-01-01T00:00:00+00:00~mail-1") == (datetime(2026, 1, 1, tzinfo=UTC), "mail-1")
