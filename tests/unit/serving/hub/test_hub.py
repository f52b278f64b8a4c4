"""A hub with the real registry and real processes; only the engine's model is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from registry.errors import (
    CheckpointError,
    ConflictError,
    DatabaseError,
    InputError,
    IntegrityError,
    IronworksError,
    NotFoundError,
)
from serving.engine.messages import SamplingParams
from serving.hub.errors import EngineDiedError, EngineUnavailableError
from serving.hub.hub import Hub
from tests.support.checkpoints import flip_byte
from tests.support.registered import add_version, promote, write_text_only_model
from tests.unit.serving.hub.world import MODEL, engines, until


async def answer(hub: Hub, token: int = 5, count: int = 4) -> str:
    """Generate and return the version that answered."""
    async with hub.lease(MODEL) as model:
        params = SamplingParams(max_tokens=count)
        got = [t async for out in model.generate("r", [token], params) for t in out.token_ids]
        assert got == [token] * count
        return model.version


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())


def test_a_hub_serves_the_aliased_version_and_records_its_life(world):
    async def body() -> None:
        async with world.hub() as hub:
            assert hub.ready().ok
            assert await answer(hub) == "v1"
            [card] = hub.models()
            assert (card.digest, card.state) == (world.digest("v1"), "ready")
            assert card.load_seconds["total"] > 0
            assert hub.stats()[MODEL].kv_tokens_total == 1024
        assert not hub.ready().ok

    run(body)
    assert world.events() == ["load.started", "load.verified", "load.ready", "load.unloaded"]
    [started] = world.bodies("load.started")
    assert (started["service"], started["alias"], started["host"]) == (
        "r1",
        "production",
        os.uname().nodename,
    )
    assert len(started["config_digest"]) == 64


def test_the_codec_is_that_of_the_version(world):
    async def body() -> None:
        async with world.hub() as hub, hub.lease(MODEL) as model:
            assert model.codec.encode("iron works") == [1, 2]

    run(body)


def test_requests_for_other_models_are_told_what_is_served(world):
    async def body() -> None:
        async with world.hub() as hub:
            with pytest.raises(NotFoundError, match="served here: echo") as caught:
                async with hub.lease("x" * 10_000):
                    pass
            assert len(str(caught.value)) < 300

    run(body)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": ""}, InputError),
        ({"model": "none"}, NotFoundError),
        ({"alias": "beta"}, NotFoundError),
    ],
)
def test_what_can_not_be_resolved_does_not_start(world, changes, error):
    async def body() -> None:
        async with world.hub(start=False, **changes) as hub:
            with pytest.raises(error):
                await hub.start()

    run(body)


def test_a_swap_under_load_fails_no_request_and_releases_the_old_engine(world):
    world.script(token_seconds=0.002, load_seconds=0.3)

    async def body() -> None:
        async with world.hub() as hub:
            served: list[str] = []
            stop = asyncio.Event()

            async def client(token: int) -> None:
                while not stop.is_set():
                    served.append(await answer(hub, token, 20))

            clients = [asyncio.create_task(client(token)) for token in range(8)]
            await until(lambda: len(served) > 20)
            old_pid = hub.models()[0].engine_pid
            report = await hub.swap(f"{MODEL}@v2")
            assert not psutil.pid_exists(old_pid)
            seen = len(served)
            await until(lambda: len(served) > seen + 20)
            stop.set()
            await asyncio.gather(*clients)
            first_new = served.index("v2")
            assert set(served[:first_new]) == {"v1"} and served[-1] == "v2"
            assert report.changed and report.cut_requests == 0
            assert report.released_bytes > 0 and report.old_engine_gone
            assert (report.from_version, report.version) == ("v1", "v2")

    run(body)
    assert world.events() == [
        *("load.started", "load.verified", "load.ready"),
        *("load.started", "load.verified", "load.ready", "load.retired", "load.unloaded"),
        "load.unloaded",
    ]


def test_a_request_that_began_on_the_old_version_ends_on_it(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub() as hub:
            async with hub.lease(MODEL) as model:
                stream = model.generate("long", [9], SamplingParams(max_tokens=100))
                await anext(stream)
                swap = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
                await until(lambda: hub.models()[0].version == "v2")
                rest = [token async for output in stream for token in output.token_ids]
                assert rest == [9] * 99 and model.version == "v1"
                assert not swap.done(), "a held version stays until its holder lets go"
                assert await answer(hub) == "v2"
            assert (await swap).cut_requests == 0

    run(body)


def test_requests_that_outlast_the_drain_are_cut_with_a_clear_error(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub(swap_drain_seconds=0.1) as hub:
            slow = asyncio.create_task(answer(hub, 5, 100_000))
            await until(lambda: hub.models()[0].leases == 1)
            report = await hub.swap(f"{MODEL}@v2")
            assert report.cut_requests == 1
            with pytest.raises(EngineDiedError):
                await slow
            assert await answer(hub) == "v2"

    run(body)


def test_a_swap_to_what_is_served_changes_nothing(world):
    async def body() -> None:
        async with world.hub() as hub:
            pid = hub.models()[0].engine_pid
            report = await hub.swap(world.digest("v1")[:12])
            assert not report.changed and hub.models()[0].engine_pid == pid

    run(body)


@pytest.mark.parametrize(
    ("fault", "error", "phase"),
    [
        ({"fail_load": "bad_checkpoint"}, CheckpointError, "read"),
        ({"fail_load": "integrity"}, IntegrityError, "read"),
        ({"fail_load": "no_memory"}, IronworksError, "read"),
        ({"lie": True}, IntegrityError, "read"),
        ({"die_in": "read"}, EngineDiedError, "read"),
        ({"die_in": "warmup"}, EngineDiedError, "warmup"),
    ],
)
def test_a_failed_swap_leaves_the_old_version_serving(world, fault, error, phase):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(**fault)
            with pytest.raises(error):
                await hub.swap(f"{MODEL}@v2")
            assert len(engines()) == 1
            assert hub.ready().ok and await answer(hub) == "v1"
            assert hub.status()["models"][0]["last_error"]
            world.script()
            assert (await hub.swap(f"{MODEL}@v2")).changed
            assert hub.status()["models"][0]["last_error"] == ""

    run(body)
    [failed] = world.bodies("load.failed")
    assert failed["phase"] == phase and failed["reason"]


def test_a_flipped_byte_in_the_store_is_refused_by_name(world, tmp_path):
    async def body() -> None:
        async with world.hub() as hub:
            view = world.registry.view(f"{MODEL}@v2")
            flip_byte(view / "model.safetensors")
            world.script(hash_files=True)
            with pytest.raises(IntegrityError) as caught:
                await hub.swap(f"{MODEL}@v2")
            assert "model.safetensors" in caught.value.where
            assert await answer(hub) == "v1"

    run(body)


def test_two_swaps_at_once_are_a_conflict(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(load_seconds=0.5)
            first = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
            await until(lambda: hub.status()["models"][0]["swapping"])
            with pytest.raises(ConflictError):
                await hub.swap(f"{MODEL}@v2")
            assert (await first).changed

    run(body)


def test_a_killed_engine_comes_back_and_the_log_shows_it(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub() as hub:
            slow = asyncio.create_task(answer(hub, 5, 100_000))
            await until(lambda: hub.models()[0].leases == 1)
            pid = hub.models()[0].engine_pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineDiedError, match="SIGKILL"):
                await slow
            with pytest.raises(EngineUnavailableError) as caught:
                await answer(hub)
            assert caught.value.retry_after > 0
            assert not hub.ready().ok
            await until(lambda: hub.ready().ok)
            assert await answer(hub) == "v1"
            [card] = hub.models()
            assert card.restarts == 1 and card.engine_pid != pid

    run(body)
    once = ["load.started", "load.verified", "load.ready"]
    assert world.events() == [*once, "load.failed", *once, "load.unloaded"]
    [failed] = world.bodies("load.failed")
    assert failed["phase"] == "serving" and "SIGKILL" in failed["reason"]


def test_an_engine_that_can_not_come_back_is_tried_again_until_it_can(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(fail_load="bad_checkpoint")
            os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
            await until(lambda: len(world.bodies("load.failed")) == 2)
            assert hub.models()[0].state == "restarting"
            world.script()
            await until(lambda: hub.ready().ok)
            assert await answer(hub) == "v1"

    run(body)


def test_a_swap_replaces_an_engine_that_can_not_come_back(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(fail_load="bad_checkpoint")
            os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
            await until(lambda: len(world.bodies("load.failed")) == 2)
            with pytest.raises(CheckpointError):
                await hub.swap(f"{MODEL}@v2")
            world.script()
            assert (await hub.swap(f"{MODEL}@v2")).changed
            assert await answer(hub) == "v2"
            assert len(engines()) == 1

    run(body)


def test_the_old_engine_may_die_while_the_new_one_loads(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(load_seconds=1.0)
            swap = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
            await until(lambda: len(engines()) == 2)
            os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
            assert (await swap).changed
            assert await answer(hub) == "v2"
            await until(lambda: len(engines()) == 1)

    run(body)


def test_the_old_engine_may_die_while_a_swap_fails(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(load_seconds=1.0, fail_load="bad_checkpoint")
            swap = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
            await until(lambda: len(world.bodies("load.started")) == 2)
            world.script()
            os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
            with pytest.raises(CheckpointError):
                await swap
            await until(lambda: hub.ready().ok)
            assert await answer(hub) == "v1"
            await asyncio.sleep(1.5)  # a second attempt to bring it back would show by now
            assert hub.models()[0].restarts == 1 and len(engines()) == 1

    run(body)


def test_a_rollback_does_not_wait_for_the_drain_of_what_it_undoes(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub() as hub:
            async with hub.lease(MODEL):
                forward = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
                await until(lambda: hub.models()[0].version == "v2")
                assert (await hub.swap(f"{MODEL}@v1")).changed
                assert await answer(hub) == "v1"
                assert not forward.done()
            assert (await forward).cut_requests == 0
            assert len(engines()) == 1

    run(body)


def test_closing_during_a_load_ends_it_and_leaves_no_load_open(world):
    async def body() -> None:
        async with world.hub() as hub:
            world.script(load_seconds=30.0)
            swap = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
            await until(lambda: len(world.bodies("load.started")) == 2)
            await hub.close()
            with pytest.raises(asyncio.CancelledError):
                await swap

    run(body)
    assert sorted(world.events()[3:]) == ["load.failed", "load.started", "load.unloaded"]


def test_cancelling_the_start_ends_the_engine(world):
    world.script(load_seconds=30.0)

    async def body() -> None:
        async with world.hub(start=False) as hub:
            start = asyncio.create_task(hub.start())
            await until(lambda: world.events() == ["load.started"])
            assert hub.ready().reason == "echo is loading"
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start

    run(body)
    assert world.events() == ["load.started", "load.failed"]


def test_draining_refuses_new_requests_and_waits_for_running_ones(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub() as hub:
            running = asyncio.create_task(answer(hub, 5, 50))
            await until(lambda: hub.models()[0].leases == 1)
            drain = asyncio.create_task(hub.drain())
            await asyncio.sleep(0)
            assert hub.ready().reason == "draining"
            with pytest.raises(EngineUnavailableError, match="draining"):
                await answer(hub)
            assert await drain == 0
            assert running.done() and await running == "v1"

    run(body)


def test_a_replica_that_starts_asks_to_come_back_and_does_not_deny_its_model(world):
    async def body() -> None:
        async with world.hub(start=False, model=MODEL) as hub:
            with pytest.raises(EngineUnavailableError, match="starting"):
                await answer(hub)
            with pytest.raises(NotFoundError):
                async with hub.lease("another"):
                    pass

    run(body)


def test_a_drain_has_a_deadline(world):
    world.script(token_seconds=0.01)

    async def body() -> None:
        async with world.hub() as hub:
            running = asyncio.create_task(answer(hub, 5, 100_000))
            await until(lambda: hub.models()[0].leases == 1)
            assert await hub.drain(0.1) == 1
            await hub.close()
            with pytest.raises(EngineDiedError):
                await running

    run(body)


def break_the_log(world) -> None:
    """From now on the registry takes no event, as on a full disk."""
    with contextlib.closing(sqlite3.connect(world.registry.root / "registry.db")) as database:
        database.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON audit_event "
            "BEGIN SELECT RAISE(ABORT, 'the test has broken the log'); END"
        )


def test_a_load_that_can_not_be_recorded_does_not_serve(world):
    break_the_log(world)

    async def body() -> None:
        async with world.hub(start=False) as hub:
            with pytest.raises(DatabaseError):
                await hub.start()
            assert engines() == []

    run(body)


def test_what_serves_already_goes_on_when_the_log_breaks(world):
    async def body() -> None:
        async with world.hub() as hub:
            break_the_log(world)
            with pytest.raises(DatabaseError):
                await hub.swap(f"{MODEL}@v2")
            assert hub.ready().ok and await answer(hub) == "v1"

    run(body)


def test_one_model_of_two_dies_and_the_other_goes_on(world, tmp_path):
    folder = write_text_only_model(tmp_path / "other", weights=b"other")
    add_version(world.registry, folder, "other@v1")
    promote(world.registry, "other@v1")
    world.script(token_seconds=0.002)

    async def body() -> None:
        async with world.hub(model=f"{MODEL},other") as hub:
            running = asyncio.create_task(answer(hub, 5, 300))
            await until(lambda: hub.models()[0].leases == 1)
            other = next(card for card in hub.models() if card.name == "other")
            os.kill(other.engine_pid, signal.SIGKILL)
            assert await running == "v1"
            await until(lambda: hub.ready().ok)

    run(body)


def test_memory_is_told_by_owner(world):
    async def body() -> None:
        async with world.hub() as hub:
            report = hub.memory()
            [engine] = report["engines"]
            assert engine["pid"] == hub.models()[0].engine_pid
            assert engine["resident_bytes"] > 0 and report["api"]["pid"] == os.getpid()

    run(body)


def test_sockets_are_left_nowhere(world):
    async def body() -> None:
        async with world.hub():
            pass

    run(body)
    assert list(Path(world.settings.state / "run").iterdir()) == []


def test_swaps_and_restarts_leave_no_descriptor_open(world):
    async def body() -> None:
        async with world.hub() as hub:
            process = psutil.Process()
            await hub.swap(f"{MODEL}@v2")
            open_before = process.num_fds()
            for version in ("v1", "v2", "v1", "v2"):
                assert (await hub.swap(f"{MODEL}@{version}")).changed
            os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
            await until(lambda: not hub.ready().ok)
            await until(lambda: hub.ready().ok)
            assert process.num_fds() == open_before

    run(body)


def test_a_load_under_way_is_shown(world):
    async def body() -> None:
        async with world.hub() as hub:
            assert hub.status()["models"][0]["loading"] is None
            world.script(load_seconds=0.5)
            swap = asyncio.create_task(hub.swap(f"{MODEL}@v2"))
            await until(lambda: (hub.status()["models"][0]["loading"] or {}).get("bytes_total"))
            shown = hub.status()["models"][0]["loading"]
            assert (shown["version"], shown["phase"]) == (f"{MODEL}@v2", "read")
            await swap
            assert hub.status()["models"][0]["loading"] is None

    run(body)
