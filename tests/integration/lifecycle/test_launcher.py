"""A run whose worker and code server were both killed is failed by the real daemon."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import dagster as dg
import psutil
import pytest

from lifecycle.launcher import is_worker

T = TypeVar("T")

HERE = Path(__file__).parent
STARTED = re.compile(r"Started process for run \(pid: (\d+)\)")


@contextmanager
def background(command: Sequence[str], env: dict[str, str], log: Path) -> Iterator[int]:
    """Run a program in its own session; killed, with what it started, at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process.pid
    finally:
        family = [process.pid]
        with suppress(psutil.NoSuchProcess):
            family += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 120) -> T:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.3)
    pytest.fail(f"no {what} within {seconds} s")


def worker_pid(instance: dg.DagsterInstance, run_id: str) -> int | None:
    run = instance.get_run_by_id(run_id)
    if run is None or run.status != dg.DagsterRunStatus.STARTED:
        return None
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        found = STARTED.search(entry.message or entry.get_dagster_event().message or "")
        if found:
            return int(found.group(1))
    return None


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_fails_when_its_worker_and_the_code_server_are_gone(
    tmp_path: Path, repository: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copyfile(repository / "lifecycle" / "dagster.yaml", home / "dagster.yaml")
    socket = tmp_path / "code.sock"
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(
        f"load_from:\n  - grpc_server: {{socket: {socket}, location_name: sleeping}}\n"
    )
    env = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(repository)}
    binaries = Path(sys.executable).parent
    code_server = [
        *(str(binaries / "dagster"), "api", "grpc", "--socket", str(socket)),
        *("-f", str(HERE / "sleeping_location.py")),
    ]
    daemon = [str(binaries / "dagster-daemon"), "run", "-w", str(workspace)]
    with ExitStack() as stack:
        server = stack.enter_context(background(code_server, env, tmp_path / "server.log"))
        wait_for("code server socket", socket.exists)
        stack.enter_context(background(daemon, env, tmp_path / "daemon.log"))
        subprocess.run(
            [str(binaries / "dagster"), "job", "launch", "-w", str(workspace), "-j", "sleeper"],
            env=env,
            check=True,
            capture_output=True,
            timeout=120,
        )
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        (run,) = instance.get_runs()
        pid = wait_for("running worker", lambda: worker_pid(instance, run.run_id))
        assert is_worker(pid)

        os.kill(server, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

        def failed() -> bool:
            now = instance.get_run_by_id(run.run_id)
            return now is not None and now.status == dg.DagsterRunStatus.FAILURE

        wait_for("failure", failed)
        messages = [entry.get_dagster_event().message or "" for entry in failures(instance, run)]
        assert any(f"process {pid} is gone" in message for message in messages)


def failures(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Sequence[dg.EventLogEntry]:
    return instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)


def test_a_pid_that_belongs_to_someone_else_is_not_a_worker() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_worker(other.pid)
        other.kill()
        # Not reaped yet: a zombie.
        deadline = time.monotonic() + 10
        while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
        assert not is_worker(other.pid)
    finally:
        other.kill()
        other.wait()
    assert not is_worker(other.pid)
