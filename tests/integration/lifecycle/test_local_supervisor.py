"""A real replica under the local supervisor, and the stack's refusals; real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lifecycle.fleet.supervisors.base import ReplicaSpec
from lifecycle.fleet.supervisors.local import LocalSupervisor
from registry.errors import ConflictError, InputError, NotFoundError
from registry.paths import StatePaths
from registry.store import Registry
from serving.client import ReplicaClient, admin_socket_path
from tests.support.ports import free_port
from tests.support.registered import add_version, promote
from tests.support.tiny_checkpoint import make_tiny_checkpoint

SERVICE = "replica-under-test"


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path / "state").create()


@pytest.fixture
def supervisor(paths: StatePaths) -> Iterator[LocalSupervisor]:
    supervisor = LocalSupervisor(paths)
    yield supervisor
    supervisor.stop(SERVICE, grace_seconds=20)


@pytest.fixture
def promoted(paths: StatePaths, tmp_path: Path, demo_model_dir: Path) -> str:
    """Registry name of a tiny model in production."""
    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", text_files_of=demo_model_dir)
    with Registry.open(paths.registry) as registry:
        add_version(registry, checkpoint, "tiny@v1")
        promote(registry, "tiny@v1")
    return "tiny"


def spec(model: str, port: int) -> ReplicaSpec:
    settings = {"IRONWORKS_THREADS": "1", "IRONWORKS_DEVICE": "cpu", "IRONWORKS_MAX_SLOTS": "2"}
    return ReplicaSpec(service=SERVICE, port=port, model=model, env=settings)


def wait_ready(client: ReplicaClient, supervisor: LocalSupervisor, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not client.readyz():
        assert supervisor.status(SERVICE).running, "\n".join(supervisor.logs(SERVICE))
        assert time.monotonic() < deadline, "\n".join(supervisor.logs(SERVICE))
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_a_replica_from_start_to_drain_to_stop(
    supervisor: LocalSupervisor, paths: StatePaths, promoted: str
) -> None:
    port = free_port()
    started = supervisor.start(spec(promoted, port))
    assert started.running
    with ReplicaClient(
        f"http://127.0.0.1:{port}", admin_socket_path(paths.root, SERVICE)
    ) as client:
        wait_ready(client, supervisor)
        # Another supervisor, as in another process, finds the same replica.
        assert LocalSupervisor(paths).start(spec(promoted, port)).pid == started.pid
        with pytest.raises(ConflictError, match="runs otherwise"):
            supervisor.start(spec(promoted, free_port()))
        assert started.pid is not None
        family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(True)]
        assert len(family) > 1, "the engine is a process of its own"

        supervisor.drain(SERVICE)
        assert client.livez()
        assert not client.readyz()

    assert not supervisor.stop(SERVICE).running
    _, left = psutil.wait_procs(family, timeout=20)
    assert left == []
    with Registry.open(paths.registry) as registry:
        kinds = [event.kind for event in registry.audit.events()]
    assert kinds.count("load.ready") == 1
    assert kinds[-1] == "load.unloaded"


def test_a_replica_that_cannot_load_says_why_in_its_log(
    supervisor: LocalSupervisor, paths: StatePaths
) -> None:
    Registry.open(paths.registry).close()
    supervisor.start(spec("absent", free_port()))
    deadline = time.monotonic() + 60
    while supervisor.status(SERVICE).running and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not supervisor.status(SERVICE).running
    assert "absent" in "\n".join(supervisor.logs(SERVICE))


def test_a_taken_port_is_refused_before_anything_starts(
    supervisor: LocalSupervisor, paths: StatePaths
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(InputError, match="can't be used"),
    ):
        supervisor.start(spec("tiny", server.getsockname()[1]))
    assert list(paths.run.glob("*.json")) == []


def test_a_replica_that_does_not_run_can_be_stopped_but_not_drained(
    supervisor: LocalSupervisor,
) -> None:
    assert not supervisor.stop(SERVICE).running
    with pytest.raises(NotFoundError):
        supervisor.drain(SERVICE)


def test_up_with_a_taken_port_changes_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ironworks", "up", "--state", str(tmp_path)),
                *("--port", str(free_port()), "--dagster-port", str(port)),
            ],
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert f"error: port {port} can't be used" in done.stderr
    assert "DAGSTER_PORT" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "run").glob("*.json"))
    assert not list((tmp_path / "dagster").iterdir())
