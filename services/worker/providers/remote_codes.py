"""What the answers of a Provider service mean, and the ways in which a call of one ends without an answer."""

from collections.abc import Mapping

from services.worker.providers import Answer
from services.worker.providers.answers import RATE_REST, Row, Table

ANSWERS: Mapping[str, Answer] = {
    "OUTCOME_ACCEPTED": Answer.ACCEPTED,
    "OUTCOME_PERMANENT_MESSAGE": Answer.PERMANENT_MESSAGE,
    "OUTCOME_PERMANENT_ADDRESS": Answer.PERMANENT_ADDRESS,
    "OUTCOME_OPTED_OUT": Answer.PERMANENT_ADDRESS,
    "OUTCOME_MISCONFIGURED": Answer.MISCONFIGURED,
    "OUTCOME_THROTTLED": Answer.THROTTLED,
    "OUTCOME_TRANSIENT": Answer.TRANSIENT,
    "OUTCOME_UNKNOWN": Answer.UNKNOWN,
}

# Of a call that ended with a status; an implementation that says no answers. Of most it cannot be told whether they are
# the server's word or the library's, which has lost the answer.
TABLE: Table = (
    Row("UNAUTHENTICATED", "*", Answer.MISCONFIGURED, "the token"),
    Row("PERMISSION_DENIED", "*", Answer.MISCONFIGURED, "the token"),
    Row("UNIMPLEMENTED", "*", Answer.MISCONFIGURED, "no Provider service is there"),
    Row("FAILED_PRECONDITION", "*", Answer.MISCONFIGURED, "it is not ready for anything"),
    Row("INVALID_ARGUMENT", "*", Answer.PERMANENT_MESSAGE, "refused"),
    Row("OUT_OF_RANGE", "*", Answer.PERMANENT_MESSAGE, "refused"),
    Row("RESOURCE_EXHAUSTED", "*", Answer.UNKNOWN, "its answer is too large", words="larger than max"),
    Row("RESOURCE_EXHAUSTED", "*", Answer.THROTTLED, "too much at once", rest=RATE_REST),
    Row("*", "*", Answer.UNKNOWN, "the call was lost, or broke"),
)
