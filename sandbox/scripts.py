"""Scripts: what a server of the sandbox shall do, written into the address that it is asked to deliver to.

    script = step { "+" step }
    step   = what [ "x" count ]     play it so many times, one request each; without a count, for ever
    what   = [ "data-" | "dot-" ] code [ "-" enhanced code ] | a `Kind` but for REFUSE | a word of the server's

docs/sandbox.md has the whole language, for mail, tokens, telephone numbers and webhooks, and where a server differs.
Each pretended provider also has words for its own refusals, which `twilio.py`, `resend.py` and `fcm.py` list.

An SMTP server hears of the recipient in RCPT. A script in the *sender's* address is played one step earlier, in MAIL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

SMTP_WORDS = {
    "bounce": "550-5.1.1",
    "reject": "dot-554-5.7.1",
    "throttle": "454-4.7.0",
    "down": "421",
    "close-before-dot": "close",
    "close-after-dot": "accept-then-close",
}
HTTP_WORDS = {"bounce": "422", "reject": "400", "throttle": "429", "down": "503"}

PHONE = re.compile(r"\+1[2-9][0-9]{2}55501(?P<what>[0-9])(?P<times>[0-9])")
PHONE_WORDS = (
    "accept",
    "bounce",
    "reject",
    "throttle",
    "425",
    "down",
    "hang",
    "close",
    "accept-then-hang",
    "accept-then-close",
)

STEP = re.compile(r"(?P<what>[a-z0-9._-]+?)(x(?P<times>[1-9][0-9]{0,2}))?", re.IGNORECASE)
REFUSAL = re.compile(r"((?P<stage>data|dot)-)?(?P<code>[345][0-9]{2})(-(?P<status>[245]\.[0-9]{1,3}\.[0-9]{1,3}))?")


class Kind(StrEnum):
    ACCEPT = "accept"
    REFUSE = "refuse"
    HANG = "hang"
    CLOSE = "close"
    ACCEPT_THEN_HANG = "accept-then-hang"
    ACCEPT_THEN_CLOSE = "accept-then-close"


class Stage(StrEnum):
    """Where an SMTP server refuses."""

    ENVELOPE = ""
    DATA = "data"
    DOT = "dot"


@dataclass(frozen=True, slots=True)
class Action:
    """What to do with one request."""

    kind: Kind
    stage: Stage = Stage.ENVELOPE
    code: int = 0
    status: str = ""
    """The code below the code: an enhanced status code, or a provider's own."""

    @property
    def accepts(self) -> bool:
        return self.kind in (Kind.ACCEPT, Kind.ACCEPT_THEN_HANG, Kind.ACCEPT_THEN_CLOSE)

    def __str__(self) -> str:
        """As it is written."""
        if self.kind is not Kind.REFUSE:
            return self.kind
        return "-".join(part for part in (self.stage.value, str(self.code), self.status) if part)


ACCEPT = Action(Kind.ACCEPT)

Words = Mapping[str, str | Action]
"""What the words of a protocol stand for: a step, or an action that is not written otherwise."""


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    times: int | None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class Script:
    steps: tuple[Step, ...] = ()

    def action(self, number: int) -> Action:
        """For the request with this number, from 1."""
        for step in self.steps:
            if step.times is None or number <= step.times:
                return step.action
            number -= step.times
        return ACCEPT


def of_address(address: str, words: Words) -> Script:
    """Of a mail address, a push token, or a telephone number in E.164."""
    if phone := PHONE.fullmatch(address):
        times = "" if phone["times"] == "0" else f"x{phone['times']}"
        return parse(PHONE_WORDS[int(phone["what"])] + times, words)
    return parse(address.rpartition("@")[0] or address, words)


def parse(text: str, words: Words) -> Script:
    """A blank joins like a plus, which is what a plus becomes in a URL's query."""
    steps = (_step(part, words) for part in re.split(r"[+ ]", text))
    return Script(tuple(step for step in steps if step))


def _step(text: str, words: Words) -> Step | None:
    found = STEP.fullmatch(text)
    if not found:
        return None
    what = found["what"].lower()
    meant = words.get(what, what)
    action = meant if isinstance(meant, Action) else _action(meant)
    return Step(action, int(found["times"]) if found["times"] else None) if action else None


def _action(what: str) -> Action | None:
    if refusal := REFUSAL.fullmatch(what):
        return Action(Kind.REFUSE, Stage(refusal["stage"] or ""), int(refusal["code"]), refusal["status"] or "")
    return Action(Kind(what)) if what in set(Kind) - {Kind.REFUSE} else None
