"""When an engine counts as stuck, and when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

from serving.engine.messages import SamplingParams
from serving.hub.work import WorkMeter
from tests.unit.serving.hub.world import MODEL, World, until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_that_does_not_move_is_a_stall_and_idleness_is_not() -> None:
    clock = Clock()
    meter = WorkMeter(clock)
    clock.now += 500
    meter.heard()
    assert not meter.progress("m").problem(20)
    meter.asked("a")
    assert meter.progress("m").stalled_seconds == 0, "idle time before the request is no stall"
    for second in range(30):  # an engine that only repeats that it is alive
        clock.now += 1
        meter.heard()
        meter.stepped(0)
        assert bool(meter.progress("m").problem(20)) == (second >= 20)
    meter.stepped(1)
    assert not meter.progress("m").problem(20)


def test_a_second_request_does_not_hide_the_stall_of_the_first() -> None:
    clock = Clock()
    meter = WorkMeter(clock)
    meter.asked("a")
    clock.now += 15
    meter.asked("b")
    clock.now += 10
    assert "2 requests are open" in meter.progress("m").problem(20)
    meter.ended("a")
    meter.ended("b")
    assert meter.progress("m").stalled_seconds == 0


def test_a_stopped_engine_is_noticed_with_and_without_work(world: World) -> None:
    async def body() -> None:
        async with world.hub(stall_seconds=0.5) as hub:
            await asyncio.sleep(1)
            assert hub.ready().ok, "idleness is no stall"
            pid = hub.models()[0].engine_pid
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: not hub.ready().ok)
            assert "said nothing" in hub.ready().reason
            os.kill(pid, signal.SIGCONT)
            await until(lambda: hub.ready().ok)

            os.kill(pid, signal.SIGSTOP)
            task = asyncio.create_task(_generate(hub))
            await until(lambda: bool(hub.progress()[0].open_requests))
            await until(lambda: "1 requests are open" in hub.progress()[0].problem(0.5))
            os.kill(pid, signal.SIGCONT)
            await task
            assert hub.progress()[0].open_requests == 0

    run(body)


def test_a_client_that_reads_slowly_is_no_stall(world: World) -> None:
    async def body() -> None:
        async with world.hub(stall_seconds=0.3) as hub, hub.lease(MODEL) as model:
            stream = model.generate("slow", [5], SamplingParams(max_tokens=20))
            async with contextlib.aclosing(stream):
                await anext(stream)
                await asyncio.sleep(1)
                assert hub.ready().ok, hub.ready().reason
                assert hub.progress()[0].open_requests == 0, "the engine has ended it long since"

    run(body)


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())


async def _generate(hub) -> None:  # type: ignore[no-untyped-def]
    async with hub.lease(MODEL) as model:
        got = [
            t
            async for out in model.generate("r", [5], SamplingParams(max_tokens=3))
            for t in out.token_ids
        ]
        assert got == [5, 5, 5]
