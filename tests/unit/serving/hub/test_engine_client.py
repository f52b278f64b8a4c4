"""The conversation with an engine process, a scripted one that can misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from serving.engine.messages import (
    FileDigest,
    Load,
    LoadFailed,
    Progress,
    Ready,
    SamplingParams,
    Verified,
)
from serving.hub.engine_client import EngineClient, SilenceLimits
from serving.hub.engine_process import describe_exit
from serving.hub.errors import EngineDiedError, RequestFailedError
from tests.support.scripted_engine import DEADLY_TOKEN, FAILING_TOKEN, MUTE_TOKEN

LOAD = Load(
    model_dir="/nowhere",
    files=(FileDigest("model.safetensors", 10, "a" * 64),),
    device="cpu",
    dtype="auto",
    max_slots=4,
    max_model_len=64,
    max_batch_tokens=64,
    threads=1,
)
SILENCE = SilenceLimits(loading=20.0, serving=20.0)


class Opened:
    """Starts engines and sees to it that none outlives its test."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self.command = command
        self.folder = folder
        self.clients: list[EngineClient] = []

    async def start(self, silence: SilenceLimits = SILENCE) -> EngineClient:
        path = self.folder / f"e{len(self.clients)}.sock"
        client, hello = await EngineClient.start(self.command, path, silence=silence)
        self.clients.append(client)
        assert hello.pid == client.pid
        assert not path.exists(), "the socket's name is gone once the engine is connected"
        return client

    async def ready(self, silence: SilenceLimits = SILENCE) -> EngineClient:
        client = await self.start(silence)
        assert isinstance(await load(client), Ready)
        return client


@contextlib.asynccontextmanager
async def opened(command: tuple[str, ...], folder: Path) -> AsyncIterator[Opened]:
    engines = Opened(command, folder)
    try:
        yield engines
    finally:
        for client in engines.clients:
            await client.kill()
            assert not psutil.pid_exists(client.pid)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no task is left behind"


async def load(client: EngineClient) -> Ready | LoadFailed:
    async def on_verified(_: Verified) -> None:
        return None

    return await client.load(LOAD, on_verified=on_verified, on_progress=lambda _: None)


async def tokens(client: EngineClient, prompt: list[int], count: int = 5) -> list[int]:
    params = SamplingParams(max_tokens=count)
    return [t async for out in client.generate("r", prompt, params) for t in out.token_ids]


def run(command: tuple[str, ...], folder: Path, body: Callable[[Opened], object]) -> None:
    async def main() -> None:
        async with opened(command, folder) as engines:
            await body(engines)  # type: ignore[misc]

    asyncio.run(main())


def test_generates_for_many_requests_at_once(engine_command, tmp_path):
    async def body(engines: Opened) -> None:
        client = await engines.ready()
        answers = await asyncio.gather(*(tokens(client, [i, i + 1], 3) for i in range(20)))
        assert answers == [[i, i + 1, i] for i in range(20)]
        assert client.stats is not None and client.stats.steps > 0

    run(engine_command, tmp_path, body)


def test_nothing_is_warmed_up_before_the_verification_is_on_record(engine_command, tmp_path):
    async def body(engines: Opened) -> None:
        client = await engines.start()
        phases: list[str] = []
        recorded: list[str] = []

        async def on_verified(verified: Verified) -> None:
            await asyncio.sleep(0.3)
            assert "warmup" not in phases
            recorded.extend(file.sha256 for file in verified.files)

        def on_progress(progress: Progress) -> None:
            phases.append(progress.phase)

        await client.load(LOAD, on_verified=on_verified, on_progress=on_progress)
        assert recorded == ["a" * 64] and phases[-1] == "warmup"

    run(engine_command, tmp_path, body)


def test_leaving_the_iterator_cancels_at_the_engine(engine_command, script, tmp_path):
    journal = tmp_path / "cancelled"
    script(token_seconds=0.01, journal=str(journal))

    async def body(engines: Opened) -> None:
        client = await engines.ready()
        stream = client.generate("gone", [1], SamplingParams(max_tokens=10_000))
        await anext(stream)
        await stream.aclose()
        while not journal.exists():
            await asyncio.sleep(0.01)
        while client.stats is None or client.stats.running:
            await asyncio.sleep(0.01)
        assert journal.read_text().startswith("gone.")

    run(engine_command, tmp_path, body)


def test_requests_of_one_id_do_not_mix(engine_command, script, tmp_path):
    script(token_seconds=0.005)

    async def body(engines: Opened) -> None:
        client = await engines.ready()
        answers = await asyncio.gather(tokens(client, [1], 4), tokens(client, [2], 8))
        assert answers == [[1] * 4, [2] * 8]

    run(engine_command, tmp_path, body)


def test_one_failing_request_leaves_the_others(engine_command, script, tmp_path):
    script(token_seconds=0.005)

    async def body(engines: Opened) -> None:
        client = await engines.ready()
        good, bad = await asyncio.gather(
            tokens(client, [7], 10), tokens(client, [FAILING_TOKEN]), return_exceptions=True
        )
        assert good == [7] * 10
        assert isinstance(bad, RequestFailedError) and bad.code == "bad_request"

    run(engine_command, tmp_path, body)


def test_death_fails_every_open_request_and_says_how(engine_command, script, tmp_path):
    script(token_seconds=0.01)

    async def body(engines: Opened) -> None:
        client = await engines.ready()
        open_ones = [asyncio.create_task(tokens(client, [i], 10_000)) for i in range(3)]
        with pytest.raises(EngineDiedError):
            await tokens(client, [DEADLY_TOKEN])
        for outcome in await asyncio.gather(*open_ones, return_exceptions=True):
            assert isinstance(outcome, EngineDiedError)
            assert "SIGKILL" in str(outcome)
        assert await client.died() == "was killed by SIGKILL"
        with pytest.raises(EngineDiedError):
            await tokens(client, [1])

    run(engine_command, tmp_path, body)


@pytest.mark.parametrize("how", ["mute", "stopped"])
def test_a_hung_engine_is_killed(engine_command, tmp_path, how):
    async def body(engines: Opened) -> None:
        client = await engines.ready(SilenceLimits(loading=20.0, serving=1.0))
        if how == "stopped":
            os.kill(client.pid, signal.SIGSTOP)
        with pytest.raises(EngineDiedError, match="said nothing"):
            await tokens(client, [MUTE_TOKEN])

    run(engine_command, tmp_path, body)


def test_a_failed_load_tells_why(engine_command, script, tmp_path):
    script(fail_load="bad_checkpoint")

    async def body(engines: Opened) -> None:
        client = await engines.start()
        failed = await load(client)
        assert isinstance(failed, LoadFailed)
        assert (failed.code, failed.where, failed.phase) == ("bad_checkpoint", "/nowhere", "read")

    run(engine_command, tmp_path, body)


@pytest.mark.parametrize("phase", ["read", "warmup"])
def test_death_while_loading_names_the_phase(engine_command, script, tmp_path, phase):
    script(die_in=phase)

    async def body(engines: Opened) -> None:
        client = await engines.start()
        with pytest.raises(EngineDiedError, match="exited with status 3"):
            await load(client)
        assert client.phase == phase

    run(engine_command, tmp_path, body)


@pytest.mark.parametrize("fault", [{"garbage": True}, {"connect": False}])
def test_an_engine_that_does_not_introduce_itself_is_ended(engine_command, script, tmp_path, fault):
    script(**fault)

    async def body(engines: Opened) -> None:
        with pytest.raises(EngineDiedError):
            await engines.start(SilenceLimits(loading=2.0, serving=2.0))
        children = psutil.Process().children()
        assert not [p for p in children if "scripted_engine" in " ".join(p.cmdline())]

    run(engine_command, tmp_path, body)


def test_a_command_that_exits_at_once_is_reported(tmp_path):
    async def body(engines: Opened) -> None:
        with pytest.raises(EngineDiedError, match="exited with status 1 before it connected"):
            await engines.start()

    run(("/bin/false",), tmp_path, body)


def test_shutdown_ends_even_an_engine_that_ignores_it(engine_command, script, tmp_path):
    async def body(engines: Opened) -> None:
        script(ignore_shutdown=True)
        stubborn = await engines.ready()
        await stubborn.shutdown(grace_seconds=0.2)
        assert stubborn.death == "was killed by SIGKILL"
        script()
        polite = await engines.ready()
        await polite.shutdown(grace_seconds=20)
        assert polite.death == "exited with status 0"

    run(engine_command, tmp_path, body)


def test_nobody_but_the_spawned_process_may_connect(engine_command, script, tmp_path):
    """A stranger that connects first is turned away, and the socket is private."""
    script(connect=False)

    async def body(engines: Opened) -> None:
        starting = asyncio.create_task(engines.start(SilenceLimits(loading=2.0, serving=2.0)))
        path = tmp_path / "e0.sock"
        while not path.exists():
            await asyncio.sleep(0.01)
        while stat.S_IMODE(path.stat().st_mode) != 0o600:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(EngineDiedError, match="did not connect"):
            await starting

    run(engine_command, tmp_path, body)


def test_ends_of_processes_are_told_in_words():
    assert describe_exit(None) == "is still running"
    assert describe_exit(0) == "exited with status 0"
    assert describe_exit(-9) == "was killed by SIGKILL"
