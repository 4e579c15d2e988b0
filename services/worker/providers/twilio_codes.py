"""What Twilio's answers to `Messages.json` mean. Its codes are documented, with the warning that they may change."""

from datetime import timedelta

from services.worker.providers import Answer
from services.worker.providers.answers import CLASSES, TAKEN, Row, Table

QUEUE_REST = timedelta(minutes=30)

TABLE: Table = (
    TAKEN,
    Row("4??", "21610", Answer.PERMANENT_ADDRESS, "the recipient has replied STOP", opted_out=True),
    Row("4??", "21211", Answer.PERMANENT_ADDRESS, "no valid number"),
    Row("4??", "21614", Answer.PERMANENT_ADDRESS, "no mobile number"),
    Row("4??", "21635", Answer.PERMANENT_ADDRESS, "a landline"),
    Row("4??", "21612", Answer.PERMANENT_MESSAGE, "no route from this sender to this number"),
    # It is a setting of the account, and yet says nothing of numbers elsewhere, which must not wait for it.
    Row("4??", "21408", Answer.PERMANENT_MESSAGE, "the account may not send to this region"),
    Row("4??", "2160[25]", Answer.PERMANENT_MESSAGE, "no text, or too long a one"),
    Row("4??", "21617", Answer.PERMANENT_MESSAGE, "longer than 1,600 characters"),
    Row("4??", "21611", Answer.TRANSIENT, "the sender's queue is full, for hours", rest=QUEUE_REST),
    Row("4??", "21608", Answer.MISCONFIGURED, "a trial account, which sends to verified numbers only"),
    Row("4??", "2160[36]", Answer.MISCONFIGURED, "the sender is missing, or cannot send here"),
    Row("4??", "21212", Answer.MISCONFIGURED, "the sender is no number"),
    Row("4??", "21659", Answer.MISCONFIGURED, "the sender is no number of Twilio's"),
    Row("4??", "21660", Answer.MISCONFIGURED, "the sender is another account's"),
    Row("4??", "2170[135]", Answer.MISCONFIGURED, "the messaging service is unknown, has no senders, or is none"),
    Row("4??", "20003", Answer.MISCONFIGURED, "the credentials are wrong"),
    Row("4??", "20005", Answer.MISCONFIGURED, "the account is not active"),
    Row("4??", "20404", Answer.MISCONFIGURED, "there is no such account"),
    Row("429", "20429", Answer.THROTTLED, "too many requests; it names no time", rest=timedelta(seconds=2)),
    # Twilio's own page on 20500: the message may have been sent, and a retry may send it again.
    Row("5??", "20500", Answer.UNKNOWN, "an error inside Twilio"),
    *CLASSES,
)
