"""What is ended when a replica is broken, and what never is."""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle.fleet.observe import ReplicaObservation
from lifecycle.fleet.probe import HostedModel, Probe
from lifecycle.fleet.processes import ProcessTable
from lifecycle.fleet.repair import kill_engines
from registry.errors import ConflictError

PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c',"
    " 'import time; time.sleep(300)']); print(child.pid, flush=True); child.wait();"
    " print('ended', flush=True); sys.stdin.read()"
)


@pytest.fixture
def parent() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.kill()
        process.wait()


def replica(pid: int, engine: int) -> ReplicaObservation:
    model = HostedModel("d" * 64, "v1", "ready", engine_pid=engine)
    probe = Probe(live=True, models={"m": model})
    return ReplicaObservation("r", "127.0.0.1", 1, process=True, pid=pid, probe=probe)


def test_only_a_child_of_the_replica_is_killed(parent: tuple[subprocess.Popen[str], int]) -> None:
    process, child = parent
    # A pid that was given away again, or is another host's, is somebody else's process.
    assert kill_engines(replica(process.pid + 1, child)) == []
    assert kill_engines(replica(child, process.pid)) == []
    assert kill_engines(replica(process.pid, 0)) == []
    assert kill_engines(replica(process.pid, 2**22 - 1)) == []
    assert process.poll() is None
    assert kill_engines(replica(process.pid, child)) == [child]
    assert process.stdout is not None
    assert process.stdout.readline() == "ended\n"


def start_unless_running(folder: str, gate: str) -> None:
    import time

    table = ProcessTable(Path(folder))
    while not Path(gate).exists():
        time.sleep(0.001)
    command = (sys.executable, "-c", "import time; time.sleep(300)")
    with contextlib.suppress(ConflictError):
        table.start("replica", command, log=Path(folder) / "log")
        with (Path(folder) / "starts").open("a") as starts:
            starts.write("start\n")


def test_two_runs_that_want_the_same_process_start_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate = tmp_path / "go"
    workers = [
        context.Process(target=start_unless_running, args=(str(tmp_path), str(gate)))
        for _ in range(4)
    ]
    try:
        for worker in workers:
            worker.start()
        gate.touch()
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        assert (tmp_path / "starts").read_text() == "start\n"
    finally:
        ProcessTable(tmp_path).stop("replica", grace_seconds=5)
