"""Scripts: what a server of the sandbox shall do, written into the address that it is asked to deliver to.

A script is a chain of steps joined by `+`, in the local part of an address: `451x2+anna@example.org` fails twice and
is then accepted. A webhook endpoint has its script in its name, `/webhooks/500x2+orders`, or in `?script=500x2`.

    step  = what [ "x" count ]     play it so many times, one request each, then go on to the next step;
                                   without a count, play it for ever
    what  = code                   refuse: `429`, `550`, `550-5.1.1`
          | "data-" code           SMTP: refuse after the command DATA
          | "dot-" code            SMTP: refuse after the final dot
          | "accept"
          | "hang"                 never answer
          | "close"                close the connection; SMTP: after DATA, before the final dot
          | "accept-then-hang"     take it, and never say so
          | "accept-then-close"    take it, and close the connection instead of saying so
          | a word of the protocol (below), which stands for one of these

What is no step is only a name, so any number of addresses can have the same script. After the last step comes
`accept`; a text without a step is accepted from the start. Requests are counted per address (webhooks: per event)
and the count outlives the process.

| word               | SMTP            | HTTP  |                                    |
|--------------------|-----------------|-------|------------------------------------|
| `bounce`           | `550-5.1.1`     | `422` | this address takes nothing         |
| `reject`           | `dot-554-5.7.1` | `400` | this content is refused            |
| `throttle`         | `454-4.7.0`     | `429` | too much at once                   |
| `down`             | `421`           | `503` | the server is away (SMTP: closes)  |
| `close-before-dot` | `close`         |       | lost before it could be delivered  |
| `close-after-dot`  | `accept-then-close` |   | lost after it was delivered        |

A push token is a script as it stands: `429x2+phone-1`. A telephone number has room for digits only, so the fictitious
ones of North America, `+1 NPA 555 01ct`, carry one step: `c` is what, and `t` how often, where 0 is for ever. Any area
code will do, so there are hundreds of each. `+1 202 555 0132` is `throttlex2`.

| c | what      | c | what    | c | what                |
|---|-----------|---|---------|---|---------------------|
| 0 | `accept`  | 4 | `425`   | 8 | `accept-then-hang`  |
| 1 | `bounce`  | 5 | `down`  | 9 | `accept-then-close` |
| 2 | `reject`  | 6 | `hang`  |   |                     |
| 3 | `throttle`| 7 | `close` |   |                     |

All other numbers are accepted, as the ones that Ofcom keeps for films, `+44 7700 900000` to `900999`.

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
