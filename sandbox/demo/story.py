"""What the shop asks for, and how each of it must end."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from notifyqueue import (
    Channel,
    EmailContent,
    Priority,
    PushContent,
    ScheduleNotificationRequest,
    SmsContent,
    TemplateContent,
    TemplateVariant,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
WINDOW = timedelta(seconds=2)
IN_WINDOW = 2
"""So many mails to one address, of the small shop, in any such window."""
OUTAGE = timedelta(seconds=3)
"""How long the push provider is down at least; it stays so until what must expire meanwhile has."""


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody whom nobody has sent anything to before, and to whom one notification goes."""

    act: str
    """The reference, which has the run in it."""
    number: int

    def __str__(self) -> str:
        return f"{self.act}-{self.number}"

    @property
    def run(self) -> str:
        return self.act.partition("-")[0]


class Said(NamedTuple):
    """What somebody read."""

    subject: str
    text: str


Make = Callable[[Who], ScheduleNotificationRequest]


TEMPLATE = "demo-shipped"
LOCALES = ("en", "de")
NAME = "O'Neill & Söhne"
VARIANTS = (
    TemplateVariant(locale="en", email=EmailContent(subject="Order {{ order }}", text="It left us today, {{ name }}.")),
    TemplateVariant(
        locale="de", email=EmailContent(subject="Bestellung {{ order }}", text="Heute ging sie ab, {{ name }}.")
    ),
)
SHIPPED: Mapping[str, Callable[[int], Said]] = MappingProxyType(
    {
        "en": lambda order: Said(f"Order {order}", f"It left us today, {NAME}."),
        "de": lambda order: Said(f"Bestellung {order}", f"Heute ging sie ab, {NAME}."),
    }
)

REQUIRED = "receipts"
"""What the small shop sends also to those who opted out."""


@dataclass(frozen=True, slots=True)
class Act:
    """Some notifications of one kind. `ends` is the one status that all of them must have at last."""

    name: str
    title: str
    count: int
    ends: str
    make: Make
    afterwards: str = ""
    """What is done to each once it is accepted: `cancel`, `cancel all` in one call, `reschedule`, `opt out`."""
    failures: int = 0
    """How often the other side must have failed for each, before it took it."""
    twice: bool = False
    """Each is asked for twice at once."""
    in_batches: bool = False
    in_outage: bool = False
    """The outage of the push provider lasts until all of them have ended."""
    small: bool = False
    """It is the small shop's, which has limits, and asks for one act after the other."""
    says: Callable[[int], Said] | None = None
    """What each must have read, by its number."""
    spaced: bool = False
    """All are to one address, which must not get more in a window than it may."""
    silent: bool = False
    """For none of them the other side was asked anything."""

    def requests(self, run: str) -> Sequence[ScheduleNotificationRequest]:
        found = [self.make(Who(self.reference(run), number)) for number in range(self.count)]
        for number, request in enumerate(found):
            request.idempotency_key = f"{run}-{self.name}-{number}"
            request.reference = self.reference(run)
            request.labels["demo"] = run
        return found

    def reference(self, run: str) -> str:
        return f"{run}-{self.name}"


def _span(span: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(span)
    return duration


def _order_mail(who: Who, script: str = "customer") -> ScheduleNotificationRequest:
    order = 1000 + who.number
    content = EmailContent(
        subject=f"Your order {order} is on its way",
        text=f"Order {order} left our house this morning.",
        html=f"<h1>On its way</h1><p>Order <b>{order}</b> left our house this morning.</p>",
    )
    return ScheduleNotificationRequest(address=f"{script}+{who}@example.com", email=content)


def _mail_to(script: str) -> Make:
    return lambda who: _order_mail(who, script)


def _later_mail(delay: Callable[[int], timedelta]) -> Make:
    def make(who: Who) -> ScheduleNotificationRequest:
        request = _order_mail(who)
        request.email.subject = "A reminder: your parcel waits for you"
        request.delay.CopyFrom(_span(delay(who.number)))
        return request

    return make


def _newsletter(who: Who) -> ScheduleNotificationRequest:
    unsubscribe = {"List-Unsubscribe": "<https://example.com/unsubscribe>"}
    content = EmailContent(subject="This week", text="New things.", headers=unsubscribe)
    request = ScheduleNotificationRequest(address=f"reader+{who}@example.com", email=content)
    request.priority = Priority.PRIORITY_LOW
    return request


def _code(who: Who) -> ScheduleNotificationRequest:
    # Every run has the same numbers: the text says whose it is.
    content = SmsContent(text=f"Your code for {who} is {100_000 + who.number}.")
    request = ScheduleNotificationRequest(address=f"+44 7700 900{who.number:03}", sms=content)
    request.priority = Priority.PRIORITY_HIGH
    request.ttl.CopyFrom(_span(timedelta(minutes=10)))
    return request


def _push_to(device: str, ttl: timedelta | None = None) -> Make:
    def make(who: Who) -> ScheduleNotificationRequest:
        content = PushContent(title="Your parcel is here", body="It waits at the door.", data={"screen": "parcel"})
        request = ScheduleNotificationRequest(address=f"{device}+{who}", push=content)
        if ttl is not None:
            request.ttl.CopyFrom(_span(ttl))
        return request

    return make


def _shipped(who: Who) -> ScheduleNotificationRequest:
    content = TemplateContent(template=TEMPLATE, channel=Channel.CHANNEL_EMAIL, locale=LOCALES[who.number % 2])
    content.variables_json = json.dumps({"order": who.number, "name": NAME})
    return ScheduleNotificationRequest(address=f"buyer+{who}@example.com", template=content)


def _as_shipped(number: int) -> Said:
    return SHIPPED[LOCALES[number % 2]](number)


def _offer(who: Who) -> ScheduleNotificationRequest:
    request = _order_mail(who)
    request.address, request.category = f"regular+{who.run}-{who.number}@example.com", "offers"
    request.delay.CopyFrom(_span(HOUR))
    return request


def _receipt(who: Who) -> ScheduleNotificationRequest:
    request = _order_mail(who)
    request.address, request.category = _offer(who).address, REQUIRED
    return request


def _to_one(ttl: timedelta | None = None) -> Make:
    def make(who: Who) -> ScheduleNotificationRequest:
        request = _order_mail(who)
        request.address = f"often+{who.run}@example.com"
        if ttl is not None:
            request.ttl.CopyFrom(_span(ttl))
        return request

    return make


def _to_no_address(_: Who) -> ScheduleNotificationRequest:
    return ScheduleNotificationRequest(address="not an address", email=EmailContent(subject="Hello", text="Hello."))


_reminder = _later_mail(lambda number: timedelta(seconds=2 + number % 4))
_in_an_hour = _later_mail(lambda _: HOUR)

ACTS: Sequence[Act] = (
    Act("orders", "order mails, in HTML", 60, "SENT", _order_mail),
    Act("codes", "one-time codes by SMS (Twilio)", 40, "SENT", _code),
    Act("parcels", "pushes while FCM is down", 40, "SENT", _push_to("phone")),
    Act("late", "pushes worth a second, meanwhile", 5, "EXPIRED", _push_to("watch", SECOND), in_outage=True),
    Act("news", "a newsletter, in batches", 120, "SENT", _newsletter, in_batches=True),
    Act("remind", "reminders, some seconds ahead", 20, "SENT", _reminder),
    Act("twice", "the same request twice at once", 5, "SENT", _order_mail, twice=True),
    Act("moved", "due in an hour, moved to now", 5, "SENT", _in_an_hour, afterwards="reschedule"),
    Act("stopped", "due in an hour, cancelled", 5, "CANCELLED", _in_an_hour, afterwards="cancel"),
    Act("recalled", "a campaign, cancelled in one call", 30, "CANCELLED", _in_an_hour, afterwards="cancel all"),
    Act("fickle", "their mail server fails twice", 5, "SENT", _mail_to("451x2"), failures=2),
    Act("busy", "FCM says 429 twice", 1, "SENT", _push_to("throttlex2+tablet"), failures=2),
    Act("silent", "taken by FCM, and no answer came", 2, "SENT", _push_to("accept-then-hangx1+tablet"), failures=1),
    Act("nobody", "mail to addresses that nobody has", 5, "FAILED", _mail_to("bounce")),
    Act("gone", "push to devices that are gone", 2, "FAILED", _push_to("invalid")),
    Act("never", "their mail server always fails", 2, "DEAD_LETTERED", _mail_to("451")),
    Act("shipped", "one template, in two languages", 6, "SENT", _shipped, says=_as_shipped),
    Act("often", "six to one, who gets two in 2 s", 6, "SENT", _to_one(), small=True, spaced=True),
    Act("stale", "a seventh, worth a second", 1, "EXPIRED", _to_one(SECOND), small=True, silent=True),
    Act("offers", "offers to two, who opt out", 2, "SUPPRESSED", _offer, "opt out", small=True, silent=True),
    Act("receipts", "receipts to them, which must go", 2, "SENT", _receipt, small=True),
)

BURST = sum(act.count for act in ACTS if act.small)
"""What the small shop may bring in at once; its rate is so slow that a day brings nothing more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What must be refused at the door, for this reason; it leaves no trace."""

    title: str
    reason: str
    make: Make
    field: str = ""
    """Which the refusal names."""
    after: str = ""
    """The act of the small shop that it comes after; of the other shop where there is none."""
    later: bool = False
    """The refusal says when to come back."""


REFUSALS: Sequence[Refusal] = (
    Refusal("mail to what is no address", "REQUEST_INVALID", _to_no_address, field="address"),
    Refusal("another offer to them", "RECIPIENT_OPTED_OUT", _offer, after="offers"),
    Refusal("one more than it may bring in", "TENANT_LIMIT_EXCEEDED", _order_mail, after="receipts", later=True),
)
