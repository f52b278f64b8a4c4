"""The code server and a run's worker are killed together: nobody is left to report it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import dagster as dg

from benchmarks.drills.world import wait_for
from lifecycle.fleet.processes import ProcessTable
from lifecycle.stack.settings import REPOSITORY

_STARTED = re.compile(r"Started process for run \(pid: (\d+)\)")
_PYTHON = (sys.executable, "-m")


class Location:
    """Dagster's daemon and a code server for ``sleeping_location``, below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = folder / "home"
        self._socket = folder / "code.sock"
        self._workspace = folder / "workspace.yaml"
        self._processes = ProcessTable(folder / "run")
        self._env = {
            "DAGSTER_HOME": str(self._home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": str(REPOSITORY),
        }

    def start(self) -> None:
        """Write the instance's settings, the product's own, and start both processes."""
        self._home.mkdir(parents=True)
        shutil.copyfile(REPOSITORY / "lifecycle" / "dagster.yaml", self._home / "dagster.yaml")
        self._workspace.write_text(
            f"load_from:\n  - grpc_server: {{socket: {self._socket}, location_name: sleeping}}\n"
        )
        self.start_code_server()
        daemon = (*_PYTHON, "dagster._daemon", "run", "-w", str(self._workspace))
        self._start("daemon", daemon)

    def start_code_server(self) -> int:
        """Start it and wait until it listens; its pid."""
        self._socket.unlink(missing_ok=True)
        file = Path(__file__).with_name("sleeping_location.py")
        command = (*_PYTHON, "dagster", "api", "grpc", "--socket", str(self._socket))
        pid = self._start("code", (*command, "-f", str(file)))
        wait_for("code server", self._socket.exists)
        return pid

    def kill_code_server(self) -> None:
        """``kill -9`` it alone; what it started goes on."""
        record = self._processes.find("code")
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)

    def launch(self) -> None:
        """Queue a run of the sleeping job."""
        command = (*_PYTHON, "dagster", "job", "launch", "-w", str(self._workspace))
        subprocess.run(
            [*command, "-j", "sleeper"],
            env={**os.environ, **self._env},
            check=True,
            capture_output=True,
            timeout=180,
        )

    def instance(self) -> dg.DagsterInstance:
        """Open the instance."""
        return dg.DagsterInstance.from_config(str(self._home))

    def stop(self) -> None:
        """End what was started."""
        for name in ("daemon", "code"):
            self._processes.stop(name, grace_seconds=5)

    def _start(self, name: str, command: tuple[str, ...]) -> int:
        log = self._folder / f"{name}.log"
        return self._processes.start(name, command, log=log, env=self._env).pid


def kill_worker_and_code_server(folder: Path) -> dict[str, object]:
    """Kill both while a run holds the only place of its replica and another one waits for it.

    Returns:
        ``failed_after_seconds`` until the run is failed, ``slot_freed_after_seconds`` until
        the one that waited runs, both from the kill, and the reason that the run shows.
    """
    location = Location(folder)
    with ExitStack() as stack:
        stack.callback(location.stop)
        location.start()
        location.launch()
        instance = stack.enter_context(location.instance())
        (first,) = instance.get_runs()
        worker = wait_for("worker", lambda: _worker(instance, first.run_id))
        location.launch()
        (second,) = [run for run in instance.get_runs() if run.run_id != first.run_id]

        killed = time.monotonic()
        location.kill_code_server()
        os.kill(worker, signal.SIGKILL)
        location.start_code_server()
        wait_for("failure", lambda: _status(instance, first.run_id) == "FAILURE")
        failed = time.monotonic() - killed
        waiting = wait_for("second run", lambda: _worker(instance, second.run_id))
        freed = time.monotonic() - killed
        os.kill(waiting, signal.SIGKILL)
        return {
            "failed_after_seconds": round(failed, 2),
            "slot_freed_after_seconds": round(freed, 2),
            "worker": worker,
            "reason": _reason(instance, first.run_id),
        }


def _worker(instance: dg.DagsterInstance, run_id: str) -> int:
    """Pid of the process of a started run, 0 if it has none."""
    if _status(instance, run_id) != "STARTED":
        return 0
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        found = _STARTED.search(entry.message or entry.get_dagster_event().message or "")
        if found:
            return int(found.group(1))
    return 0


def _status(instance: dg.DagsterInstance, run_id: str) -> str:
    run = instance.get_run_by_id(run_id)
    return "" if run is None else run.status.value


def _reason(instance: dg.DagsterInstance, run_id: str) -> str:
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    return " ".join(entry.get_dagster_event().message or "" for entry in entries)
