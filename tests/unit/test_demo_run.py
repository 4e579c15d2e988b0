"""A run of the demo that cannot end well: it ends, and in one line it is said why."""

import asyncio

import aiohttp
import asyncpg
import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from sandbox.demo import run
from sandbox.demo.day import Day, Played
from sandbox.demo.ledgers import Sandbox
from sandbox.demo.story import ACTS
from sandbox.up import Died, NotUp


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (aiohttp.ClientConnectionError("no\nroute"), "ClientConnectionError: no route"),
        (asyncpg.InterfaceError("gone"), "InterfaceError: gone"),
        (AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "gone"), "UNAVAILABLE, gone"),
        (Died("worker", -9, ["its last words"]), "the worker ended with -9"),
        (NotUp("no database"), "no database"),
        (run.TooLate(["an act"]), "did not end within"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_whatever_went_wrong_is_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "database", fails)
    monkeypatch.setattr("sys.argv", ["demo"])
    assert run.main() == 1
    *before, last = capsys.readouterr().out.splitlines()
    assert last.startswith("demo: failed: ")
    assert said in last
    assert before in ([], ["  its last words"], ["demo: wrong: an act"])


class Endless(Day):
    """Nothing of it is ever accepted."""

    def __init__(self) -> None:
        self.played = [Played(act) for act in ACTS[:2]]
        self.refused_as_told = {}
        self.broken_off = False

    async def play(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.broken_off = True


class Deaf(Sandbox):
    def __init__(self) -> None:
        self.outages: list[float] = []

    async def take_push_down(self, seconds: float) -> None:
        self.outages.append(seconds)


async def test_a_day_that_does_not_end_names_what_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PATIENCE", 0.01)
    day = Endless()
    with pytest.raises(run.TooLate) as late:
        await run._play(day, Deaf())
    assert [problem.partition(":")[0] for problem in late.value.problems] == [act.title for act in ACTS[:2]]
    assert day.broken_off


async def test_a_day_that_is_broken_off_says_why_and_nothing_of_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Endless):
        async def look(self) -> None:
            await asyncio.sleep(0)  # so that the day begins
            raise aiohttp.ClientConnectionError("gone")

    day = Fails()
    with pytest.raises(aiohttp.ClientConnectionError):
        await run._play(day, Deaf())
    assert day.broken_off
