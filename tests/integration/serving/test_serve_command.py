"""``ironworks serve`` and ``ironworks replica``: what the command line tells a person."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from registry.paths import StatePaths
from registry.store import Registry
from tests.support.checkpoints import flip_byte
from tests.support.ports import free_port
from tests.support.registered import add_version, promote, write_text_only_model

MODEL = "demo"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder whose registry is empty."""
    paths = StatePaths(tmp_path / "var").create()
    Registry.open(paths.registry).close()
    return paths.root


@pytest.fixture
def demo_state(state: Path, demo_model_dir: Path) -> Path:
    """The same with the demo model in production."""
    with Registry.open(StatePaths(state).registry) as registry:
        add_version(registry, demo_model_dir, f"{MODEL}@v1")
        promote(registry, f"{MODEL}@v1")
    return state


def ironworks(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ironworks", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=150,
    )


def load_events(state: Path) -> list[str]:
    with Registry.open(StatePaths(state).registry) as registry:
        return [event.kind for event in registry.audit.events() if event.kind.startswith("load.")]


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_in_use_is_said_before_anything_is_loaded(state):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ironworks("serve", "--model", MODEL, "--port", str(port), "--state", str(state))
    assert f"127.0.0.1:{port}" in refusal(done) and "in use" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--model"),
        (("--model", "nobody"), "nobody"),
        (("--model", "nobody", "--device", "tpu"), "IRONWORKS_DEVICE"),
    ],
)
def test_what_can_not_be_served_is_said_plainly(state, arguments, said):
    port = str(free_port())
    done = ironworks("serve", "--state", str(state), "--port", port, *arguments)
    assert said in refusal(done)


def test_without_a_registry_the_command_that_makes_one_is_named(tmp_path):
    port = str(free_port())
    done = ironworks("serve", "--state", str(tmp_path / "none"), "--port", port, "--model", "m")
    assert "ironworks registry init" in refusal(done)


def test_asking_a_replica_that_is_away_names_its_socket(state):
    done = ironworks("replica", "status", "--state", str(state), "--service", "gone")
    assert "gone.admin.sock" in refusal(done)


def test_a_model_that_is_none_is_refused_and_on_record(state, tmp_path):
    folder = write_text_only_model(tmp_path / "text", weights=b"no weights")
    with Registry.open(StatePaths(state).registry) as registry:
        add_version(registry, folder, f"{MODEL}@v1")
        promote(registry, f"{MODEL}@v1")
    port = str(free_port())
    done = ironworks("serve", "--state", str(state), "--port", port, "--model", MODEL)
    assert "config.json" in refusal(done)
    assert load_events(state) == ["load.started", "load.failed"]


def test_damaged_weights_do_not_start(demo_state):
    with Registry.open(StatePaths(demo_state).registry) as registry:
        flip_byte(registry.view(f"{MODEL}@v1") / "model-00002-of-00003.safetensors")
    port = str(free_port())
    done = ironworks("serve", "--state", str(demo_state), "--port", port, "--model", MODEL)
    assert "model-00002-of-00003.safetensors" in refusal(done)
    assert load_events(demo_state) == ["load.started", "load.failed"]


def test_sigterm_while_loading_ends_the_load_and_exits_cleanly(demo_state):
    port = str(free_port())
    options = ["--state", str(demo_state), "--port", port, "--model", MODEL]
    process = subprocess.Popen(
        [sys.executable, "-m", "ironworks", "serve", *options],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while load_events(demo_state) != ["load.started"]:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert load_events(demo_state)[-1] == "load.failed"
    assert list(StatePaths(demo_state).run.iterdir()) == [], "no socket is left behind"
