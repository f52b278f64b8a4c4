"""Every recovery drill, one row each: from the fault to serving again, and what clients saw.

usage: python -m benchmarks.recovery [--quick]

The product runs as `make up REPLICAS=2` starts it, with the real Dagster daemon, and is
broken on purpose. `--quick` breaks each thing once, else it is broken three times and the
worst is reported. A drill that this machine can't run is listed under `absent`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.drills import disk, gpu
from benchmarks.drills.engine import kill_engine
from benchmarks.drills.fleet import kill_daemon_in_recovery, kill_replica, stop_engine
from benchmarks.drills.stack import running_stack
from benchmarks.drills.worker import kill_worker_and_code_server
from benchmarks.drills.world import make_world
from benchmarks.report import Options, Target, parse_options, print_result
from lifecycle.fleet.proxy.base import ProxyError
from lifecycle.fleet.proxy.process import find_haproxy
from lifecycle.stack.demo import demo_model
from lifecycle.stack.report import Report
from registry.paths import StatePaths

Row = Mapping[str, object]
Drill = Callable[[], Row]

TARGETS: dict[str, Target] = {
    "engine_killed.serving_again_seconds": ("<=", 5),
    "replica_killed.serving_again_seconds": ("<=", 15),
    "replica_killed.refused": ("<=", 0),
    "replica_killed.failed_at_healthy": ("<=", 0),
    "engine_hung.failed_at_healthy": ("<=", 0),
    "engine_hung.refused": ("<=", 0),
    "daemon_killed.starts": ("<=", 1),
    "daemon_killed.failed_at_healthy": ("<=", 0),
    "daemon_killed.refused": ("<=", 0),
    **{
        f"{name}.exported_serving_again_seconds": ("<=", 45)
        for name in ("gpu_lost", "gpu_lost_needs_reload", "nvml_hang", "driver_mismatch")
    },
    "foreign_holder.recovery_runs": ("<=", 1),
    "foreign_holder.in_rotation": ("<=", 0),
    "fallen_off_the_bus.recovery_runs": ("<=", 1),
    "fallen_off_the_bus.in_rotation": ("<=", 0),
    "disk_full.failed_requests": ("<=", 0),
    # One poll of run monitoring is 5 s; looking at the run and failing it come on top.
    "worker_killed.failed_after_seconds": ("<=", 10),
}


class Rows:
    """Runs drills and keeps the worst of what each reports."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.figures: dict[str, object] = {}
        self.absent: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def add(self, name: str, drill: Drill, *, absent: str = "") -> None:
        """Run one drill for each round; a failure of the drill is a row of its own."""
        if absent:
            self.absent[name] = absent
            progress(f"{name}: absent, {absent}")
            return
        for number in range(self._rounds):
            try:
                row = drill()
            except Exception as error:
                self.failed[name] = f"{type(error).__name__}: {error}"[:500]
                progress(f"{name}: {traceback.format_exc()}")
                return
            progress(f"{name} ({number + 1} of {self._rounds}): {row}")
            for field, value in row.items():
                key = f"{name}.{field}"
                self.figures[key] = _worst(self.figures.get(key), value)


def _worst(before: object, now: object) -> object:
    """The larger of two numbers; of anything else the later one."""
    if isinstance(before, int | float) and isinstance(now, int | float):
        return max(before, now)
    return now


def progress(message: str) -> None:
    """Say on stderr how far it is; stdout holds only the result."""
    print(message, file=sys.stderr, flush=True)


def run(options: Options) -> None:
    """Run every drill and print the result line."""
    load_average = os.getloadavg()
    model = demo_model(StatePaths.from_env(), Report())
    rows = Rows(1 if options.quick else 3)
    with tempfile.TemporaryDirectory(prefix="ironworks-drills-") as scratch:
        folders = (Path(scratch) / str(number) for number in range(10**6))
        rows.add("engine_killed", lambda: kill_engine(make_world(next(folders), model)))
        full = lambda: disk.full_disk(next(folders), model)  # noqa: E731
        rows.add("disk_full", full, absent=disk.absent())
        rows.add("worker_killed", lambda: kill_worker_and_code_server(next(folders)))
        _fleet_rows(rows, next(folders), model)
        _gpu_rows(rows, next(folders), model)
    figures = {**rows.figures, "failed_drills": rows.failed, "absent": rows.absent}
    targets = {
        name: target for name, target in TARGETS.items() if name.split(".")[0] not in rows.absent
    }
    print_result("recovery", figures, targets, load_average)


def _fleet_rows(rows: Rows, folder: Path, model: Path) -> None:
    """The drills that need HAProxy, Dagster and two replicas; one stack serves them all."""
    names = ("replica_killed", "engine_hung", "daemon_killed")
    try:
        find_haproxy()
    except ProxyError as error:
        for name in names:
            rows.add(name, dict, absent=str(error))
        return
    with running_stack(folder, model) as stack:
        rows.add("replica_killed", lambda: kill_replica(stack))
        rows.add("engine_hung", lambda: stop_engine(stack))
        rows.add("daemon_killed", lambda: kill_daemon_in_recovery(stack))


def _gpu_rows(rows: Rows, folder: Path, model: Path) -> None:
    """The drills that break the fake driver; one stack serves them all."""
    if reason := gpu.absent():
        for name in gpu.DRILLS:
            rows.add(name, dict, absent=reason)
        return
    with gpu.gpu_stack(folder, model) as on:
        for name, drill in gpu.DRILLS.items():
            rows.add(name, partial(drill, on))


if __name__ == "__main__":
    run(parse_options(__doc__))
