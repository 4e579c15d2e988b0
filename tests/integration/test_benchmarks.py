"""What the benchmarks show beside ours are the services' own statements, as they are now."""

from benchmarks import bare
from tests.notifications import Notifications


async def test_the_bare_statements_are_those_of_the_services(database_url: str, notifications: Notifications) -> None:
    assert await bare.accepted_per_second(database_url, 0.1, 4) > 0
    (waiting,) = (await notifications.statuses()).values()
    assert await bare.drained_per_second(database_url, waiting) > 0
    assert len(await bare.latencies(database_url, 2)) == 2
    assert set(await notifications.statuses()) == {"SENT", "PROCESSING"}
