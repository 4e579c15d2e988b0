"""What runs in the background: turn after turn, from entering to leaving."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from shared import loop
from shared.loop import Loop
from tests.waiting import eventually, settled

LONG = 3600.0


class Turns:
    """Turns that last until they are let go, and how many began and ended."""

    def __init__(self, *, delay: float | None = None, held: bool = False) -> None:
        self.delay = delay
        self.began = 0
        self.ended = 0
        self.most_at_once = 0
        self._gate = asyncio.Event()
        if not held:
            self._gate.set()

    async def __call__(self) -> float | None:
        self.began += 1
        self.most_at_once = max(self.most_at_once, self.began - self.ended)
        await self._gate.wait()
        self.ended += 1
        return self.delay

    def let_go(self) -> None:
        self._gate.set()


class Failing:
    """Turns that raise, as often as they are called."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> float | None:
        self.calls += 1
        raise RuntimeError("this turn fails")


async def test_a_turn_begins_with_entering() -> None:
    turns = Turns()
    async with Loop("test", turns):
        await settled()
        assert turns.began == 1


async def test_a_turn_that_waits_for_a_wake_up_is_not_called_before() -> None:
    turns = Turns(delay=None)
    async with Loop("test", turns) as running:
        await settled()
        running.wake()
        await settled()
        assert turns.began == 2


async def test_a_turn_that_has_more_to_do_is_called_again_at_once() -> None:
    turns = Turns(delay=0)
    async with Loop("test", turns):
        await eventually(lambda: turns.began > 3)


async def test_a_turn_is_called_again_after_the_delay_it_asked_for() -> None:
    turns = Turns(delay=0.01)
    async with Loop("test", turns):
        await eventually(lambda: turns.began > 3)


async def test_a_wake_up_does_not_wait_for_the_delay() -> None:
    turns = Turns(delay=LONG)
    async with Loop("test", turns) as running:
        await settled()
        assert turns.began == 1
        running.wake()
        await settled()
        assert turns.began == 2


async def test_turns_never_overlap() -> None:
    turns = Turns(delay=0, held=True)
    async with Loop("test", turns) as running:
        for _ in range(5):
            running.wake()
            await settled()
        assert turns.began == 1
        turns.let_go()
        await eventually(lambda: turns.ended > 3)
    assert turns.most_at_once == 1


async def test_a_wake_up_during_a_turn_is_not_lost() -> None:
    turns = Turns(delay=None, held=True)
    async with Loop("test", turns) as running:
        await settled()
        running.wake()
        await settled()
        turns.let_go()
        await settled()
        assert turns.began == 2


async def test_wake_ups_during_a_turn_are_one_turn_more() -> None:
    turns = Turns(delay=None, held=True)
    async with Loop("test", turns) as running:
        await settled()
        for _ in range(3):
            running.wake()
        turns.let_go()
        await settled()
        assert turns.began == 2


async def test_a_turn_that_raises_is_logged_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "AFTER_ERROR", 0.0)
    failing = Failing()
    with capture_logs() as lines:
        async with Loop("test", failing):
            await eventually(lambda: failing.calls > 2)
    assert [line["event"] for line in lines] == ["loop.failed"] * failing.calls
    assert lines[0]["loop"] == "test"
    assert isinstance(lines[0]["exc_info"], RuntimeError)


async def test_a_turn_that_raises_does_not_spin() -> None:
    failing = Failing()
    with capture_logs():
        async with Loop("test", failing):
            await settled()
            assert failing.calls == 1


async def test_a_wake_up_ends_the_pause_after_an_error() -> None:
    failing = Failing()
    with capture_logs():
        async with Loop("test", failing) as running:
            await settled()
            running.wake()
            await settled()
            assert failing.calls == 2


async def test_a_pause_waits_for_the_running_turn() -> None:
    turns = Turns(held=True)
    async with Loop("test", turns) as running:
        await settled()
        pausing = asyncio.create_task(running.pause())
        await settled()
        assert not pausing.done()
        turns.let_go()
        await pausing
        assert turns.ended == 1


async def test_a_pause_waits_for_the_running_turn_also_if_it_raises() -> None:
    with capture_logs():
        async with Loop("test", Failing()) as running:
            await settled()
            await running.pause()


@pytest.mark.parametrize("delay", [0, 0.001, None])
async def test_no_turn_begins_while_it_is_paused(delay: float | None) -> None:
    turns = Turns(delay=delay)
    async with Loop("test", turns) as running:
        await settled()
        await running.pause()
        began = turns.began
        running.wake()
        await settled()
        assert turns.began == began


async def test_a_resumed_loop_begins_a_turn_at_once() -> None:
    turns = Turns(delay=LONG)
    async with Loop("test", turns) as running:
        await settled()
        await running.pause()
        running.resume()
        await settled()
        assert turns.began == 2


async def test_a_pause_right_after_a_resume_holds() -> None:
    turns = Turns(delay=0)
    async with Loop("test", turns) as running:
        await settled()
        await running.pause()
        await settled()
        began = turns.began
        running.resume()
        await running.pause()
        await settled()
        assert turns.began == began


async def test_leaving_waits_for_the_running_turn_and_begins_no_other() -> None:
    turns = Turns(delay=0, held=True)
    running = await Loop("test", turns).__aenter__()
    await settled()
    leaving = asyncio.create_task(running.__aexit__())
    await settled()
    assert not leaving.done()
    running.wake()
    turns.let_go()
    await leaving
    assert turns.began == turns.ended == 1


async def _asleep(running: Loop) -> None:
    await settled()


async def _paused(running: Loop) -> None:
    await running.pause()


async def _paused_and_woken(running: Loop) -> None:
    await running.pause()
    running.wake()


@pytest.mark.parametrize("bring", [_asleep, _paused, _paused_and_woken])
async def test_leaving_does_not_wait_for_what_is_not_running(bring: Callable[[Loop], Awaitable[None]]) -> None:
    turns = Turns(delay=LONG)
    async with Loop("test", turns) as running:
        await settled()
        await bring(running)
    assert turns.began == 1
