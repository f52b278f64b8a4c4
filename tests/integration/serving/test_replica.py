"""One replica with the real engine, the real registry and the real model."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from registry.errors import IntegrityError
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.checkpoints import flip_byte, perturbed_copy
from tests.support.registered import add_version, promote
from tests.support.replica import Replica, running_replica

MODEL = "smollm2-135m"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ENGINE_STARTS_SECONDS = 120


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Path:
    """A state folder with v1 (production), v2 and v3, which differ in one tensor each."""
    folder = tmp_path_factory.mktemp("serving")
    paths = StatePaths(folder / "var").create()
    with Registry.open(paths.registry) as registry:
        add_version(registry, demo_model_dir, f"{MODEL}@v1")
        for number in (2, 3):
            perturbed_copy(
                demo_model_dir,
                folder / f"v{number}",
                tensor=f"model.layers.{number}.mlp.up_proj.weight",
            )
            add_version(registry, folder / f"v{number}", f"{MODEL}@v{number}")
        promote(registry, f"{MODEL}@v1")
    return paths.root


@pytest.fixture(scope="module")
def registry(state: Path) -> Iterator[Registry]:
    with Registry.open(StatePaths(state).registry) as opened:
        yield opened


@pytest.fixture(scope="module")
def replica(state: Path) -> Iterator[Replica]:
    with running_replica(state, MODEL) as started:
        yield started


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ENGINE_STARTS_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def chat(replica: Replica, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 12, "temperature": 0, **fields}
    return httpx.post(f"{replica.url}/v1/chat/completions", json=body, timeout=120)


def events_since(registry: Registry, seq: int) -> list[tuple[str, dict[str, Any]]]:
    return [(event.kind, event.body) for event in registry.audit.events(after=seq)]


def last_seq(registry: Registry) -> int:
    return registry.audit.head().seq


def test_it_answers_and_says_which_weights_did(replica, registry):
    response = chat(replica)
    assert response.status_code == 200, response.text
    assert "Paris" in response.json()["choices"][0]["message"]["content"]
    serving = replica.client().status()["models"][0]
    assert response.headers["x-model-version"] == serving["digest"][:12]
    assert response.json()["system_fingerprint"] == f"iw-{serving['digest'][:12]}"


def test_a_swap_under_load_loses_nothing(replica, registry):
    before = last_seq(registry)
    stop = threading.Event()
    seen: list[tuple[int, str]] = []
    broken: list[str] = []

    def plain() -> None:
        while not stop.is_set():
            response = chat(replica)
            seen.append((response.status_code, response.headers.get("x-model-version", "")))

    def streaming() -> None:
        body = {"model": MODEL, "messages": QUESTION, "max_tokens": 12, "stream": True}
        while not stop.is_set():
            url = f"{replica.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=body, timeout=120) as response:
                lines = [line for line in response.iter_lines() if line]
            seen.append((response.status_code, response.headers.get("x-model-version", "")))
            if lines[-1] != "data: [DONE]" or "error" in json.loads(lines[-2][6:]):
                broken.append("\n".join(lines))

    threads = [threading.Thread(target=target) for target in (plain, plain, streaming)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(seen) > 3)
        old_pid = replica.engine_pid()
        with replica.client() as client:
            report = client.swap(f"{MODEL}@v2")
        after = len(seen)
        wait_for(lambda: len(seen) > after + 3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} == {200}
    assert broken == []
    old, new = report["from_digest"][:12], report["digest"][:12]
    assert seen[0][1] == old and seen[-1][1] == new
    assert report["cut_requests"] == 0 and report["released_bytes"] > 100_000_000
    assert not psutil.pid_exists(old_pid)
    kinds = [kind for kind, _ in events_since(registry, before)]
    assert kinds == [
        *("load.started", "load.verified", "load.ready"),
        *("load.retired", "load.unloaded"),
    ]


def test_damaged_weights_are_refused_and_the_old_version_serves_on(replica, registry):
    before = last_seq(registry)
    digest = chat(replica).headers["x-model-version"]
    # The shard that no other version shares.
    shards = [set(registry.version(f"{MODEL}@v{n}").manifest.files) for n in (1, 2, 3)]
    [own] = shards[2] - shards[0] - shards[1]
    flip_byte(registry.view(f"{MODEL}@v3") / own.path)
    with replica.client() as client, pytest.raises(IntegrityError) as caught:
        client.swap(f"{MODEL}@v3")
    assert own.path in str(caught.value)
    answer = chat(replica)
    assert answer.status_code == 200 and answer.headers["x-model-version"] == digest
    kinds = events_since(registry, before)
    assert [kind for kind, _ in kinds] == ["load.started", "load.failed"]
    assert own.path in kinds[-1][1]["reason"]


def test_a_killed_engine_is_reported_healed_and_recorded(replica, registry):
    before = last_seq(registry)
    digest = chat(replica).headers["x-model-version"]
    lines: list[str] = []
    first_token = threading.Event()

    def stream() -> None:
        body = {
            "model": MODEL,
            "messages": QUESTION,
            "max_tokens": 1500,
            "stream": True,
            "temperature": 1,
            "ignore_eos": True,
        }
        url = f"{replica.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=120) as response:
            for line in response.iter_lines():
                lines.append(line)
                if '"content"' in line:
                    first_token.set()

    reader = threading.Thread(target=stream)
    reader.start()
    assert first_token.wait(60)
    pid = replica.engine_pid()
    os.kill(pid, signal.SIGKILL)
    reader.join(60)
    assert any('"error"' in line and "SIGKILL" in line for line in lines), lines[-3:]

    refused = chat(replica)
    if refused.status_code != 200:  # unless the engine was back already
        assert refused.status_code == 503
        assert refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
    wait_for(lambda: chat(replica).status_code == 200)
    assert chat(replica).headers["x-model-version"] == digest
    assert replica.engine_pid() != pid
    kinds = events_since(registry, before)
    assert [kind for kind, _ in kinds] == [
        *("load.failed", "load.started", "load.verified", "load.ready"),
    ]
    assert "SIGKILL" in kinds[0][1]["reason"]


def test_sigterm_drains_and_records_the_end(state, registry):
    with running_replica(state, MODEL) as replica:
        before = last_seq(registry)
        lines: list[str] = []
        first_token = threading.Event()

        def stream() -> None:
            body = {"model": MODEL, "messages": QUESTION, "max_tokens": 100, "stream": True}
            url = f"{replica.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=body, timeout=120) as response:
                for line in response.iter_lines():
                    lines.append(line)
                    if '"content"' in line:
                        first_token.set()

        reader = threading.Thread(target=stream)
        reader.start()
        assert first_token.wait(60)
        engine = replica.engine_pid()
        replica.process.send_signal(signal.SIGTERM)
        reader.join(60)
        assert replica.process.wait(60) == 0, replica.log.read_text()[-3000:]
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert not any('"error"' in line for line in lines)
        assert not psutil.pid_exists(engine)
        assert [kind for kind, _ in events_since(registry, before)] == ["load.unloaded"]


def test_an_engine_does_not_outlive_its_replica(state):
    with running_replica(state, MODEL) as replica:
        engine = replica.engine_pid()
        replica.process.kill()
        replica.process.wait()
        wait_for(lambda: not psutil.pid_exists(engine))
