"""What arrived, as the inbox page shows it: a line in its list, and one thing opened."""

import json
from contextlib import suppress
from email import message_from_bytes
from email.policy import default
from typing import Any

import nh3

from sandbox.receiver import UNREADABLE
from sandbox.store import Row
from services.scheduler import segments

ATTRIBUTES = {
    "*": {"align", "bgcolor", "class", "color", "dir", "height", "lang", "style", "title", "valign", "width"},
    "a": {"href"},
    "img": {"alt", "src"},
    "table": {"border", "cellpadding", "cellspacing"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
    "font": {"face", "size"},
}
TAGS = nh3.ALLOWED_TAGS | {"font", "style"}
NAMES = {"twilio": "SMS", "fcm": "push"}


def line(row: Row) -> Row:
    """Of a row of list_arrivals."""
    title, preview = row["title"], row["preview"]
    if row["kind"] == "webhook":
        event = _event(preview)
        title, preview = _text(event.get("type")) or "not an event", _told(event)
    return row | {"title": title, "preview": preview}


def mail(row: Row) -> Row:
    """`facts` are names and values, here and below."""
    html, links = rendition(row["html"]) if row["html"] else (None, [])
    return {
        "kind": "mail",
        "title": row["subject"],
        "facts": _headers(row["raw"]),
        "warning": f"{row['copies']} mails have this delivery key" if row["copies"] > 1 else None,
        "text": row["text"],
        "html": f"/inbox/mails/{row['id']}/html" if html else None,
        "links": links,
        "source": f"/inbox/mails/{row['id']}/source",
        "asked": ("smtp" if _json(row["raw"]) is None else "resend", row["address"]),
    }


def message(row: Row) -> Row:
    content, sms = row["content"], row["server"] == "twilio"
    facts = [("From", content.get("from")), ("To", row["address"])] if sms else [("Device", row["address"])]
    if sms:
        size = segments.size(content["text"])
        facts.append(("Segments", f"{size.segments} of {size.encoding}, {size.units} units"))
    facts += [("Taken as", row["taken_as"]), ("Takes the place of", row["replaces"])]
    facts += [(f"data.{name}", value) for name, value in (content.get("data") or {}).items()]
    return {
        "kind": NAMES[row["server"]].lower(),
        "title": content.get("title") or "",
        "facts": _known(facts),
        "warning": _again(row["deliveries"], "the device shows one"),
        "text": content["text"] if sms else content.get("body") or "",
        "asked": (row["server"], row["address"]),
    }


def mock_delivery(row: Row) -> Row:
    content = row["content"]
    known = ("subject", "title", "text", "body", "html")
    facts = [("To", row["address"]), ("Delivery key", str(row["delivery_key"])), ("Provider", "mock")]
    facts += [(name, value) for name, value in content.items() if name not in known]
    return {
        "kind": "mail" if row["channel"] == "EMAIL" else row["channel"].lower(),
        "title": content.get("subject") or content.get("title") or "",
        "facts": _known(facts),
        "warning": _again(row["deliveries"], "it is delivered once"),
        "text": content.get("text") or content.get("body") or "",
        "asked": ("mock", row["address"]),
    }


def webhook(row: Row) -> Row:
    event = _event(row["body"])
    verified = {True: "yes", False: "no: not all were signed", None: "not tried: no secret is known"}
    answers = ", ".join(str(status) if status else "none" for status in row["answers"])
    return {
        "kind": "webhook",
        "title": _text(event.get("type")) or "not an event",
        "facts": _known(
            [
                ("Endpoint", row["name"]),
                ("Event", row["webhook_id"]),
                ("Signature verified", verified[row["verified"]]),
                ("Delivered", len(row["answers"])),
                ("Answered", answers),
            ]
        ),
        "warning": None,
        "text": _laid_out(event) or row["body"],
        "asked": ("webhook", row["name"]),
    }


def request(row: Row) -> Row:
    facts = [("Asked of", row["server"]), ("Address", row["address"]), ("Delivery key", row["delivery_key"])]
    return {
        "kind": "refused",
        "title": row["action"],
        "facts": _known([*facts, ("Attempt", row["attempt"])]),
        "warning": None,
        "text": "",
        "asked": (row["server"], row["address"]),
    }


def rendition(html: str) -> tuple[str, list[str]]:
    """A mail's HTML without what runs or leads anywhere, and where its links led.

    A frame without scripts and a policy that loads nothing would do, but that browsers connect ahead to where a link or
    a hint points.
    """
    links: dict[str, None] = {}

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if (tag, attribute) == ("a", "href"):
            links.setdefault(value)
            return None
        return value if attribute != "src" or value.startswith("data:image/") else None

    clean = nh3.clean(
        html,
        tags=TAGS,
        clean_content_tags={"script"},
        attributes=ATTRIBUTES,
        attribute_filter=keep,
        url_schemes={"data", "http", "https", "mailto", "tel"},
        link_rel=None,
    )
    return clean, list(links)


def _headers(raw: bytes) -> list[tuple[str, str]]:
    sent = _json(raw)
    if sent is None:
        return [(name, _header(name, value)) for name, value in message_from_bytes(raw, policy=default).raw_items()]
    names = ("from", "to", "reply_to", "subject")
    given = [(name.replace("_", "-").title(), _joined(sent.get(name))) for name in names]
    return _known([*given, *(sent.get("headers") or {}).items()])


def _header(name: str, value: str) -> str:
    try:
        return _text(str(default.header_fetch_parse(name, value)))
    except Exception:  # what the parser raises where it was never meant to get
        return _text(value)


def _json(raw: bytes) -> Row | None:
    """Resend's body. No mail begins so."""
    found: Any = None
    if raw.startswith(b"{"):
        with suppress(*UNREADABLE):
            found = json.loads(raw)
    return found if isinstance(found, dict) else None


def _event(body: str) -> Row:
    found: Any = None
    with suppress(*UNREADABLE):
        found = json.loads(body)
    return found if isinstance(found, dict) else {}


def _laid_out(event: Row) -> str:
    with suppress(RecursionError):  # what can be read can still be too deep for this
        return json.dumps(event, indent=2, ensure_ascii=False) if event else ""
    return ""


def _told(event: Row) -> str:
    data = event.get("data")
    told = [data.get("channel"), data.get("notification_id")] if isinstance(data, dict) else []
    return " ".join(_text(part) for part in told if part)


def _again(times: int, so: str) -> str | None:
    return f"Sent {times} times; {so}" if times > 1 else None


def _known(facts: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in facts if value not in (None, "", [])]


def _joined(value: Any) -> str:
    return ", ".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    """As JSON can carry it: a mail's headers may have halves of characters."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()
