"""`make down`: ends what `make up` started in this state folder, and nothing else."""

from __future__ import annotations

from lifecycle.fleet.processes import ProcessTable
from lifecycle.fleet.proxy.process import SERVICE as PROXY
from lifecycle.fleet.supervisors.local import STOP_SECONDS
from lifecycle.stack.report import Report
from lifecycle.stack.services import ENDING
from registry.paths import StatePaths

# A run in progress may end by itself; what remains of the code server's group is killed.
CONTROL_PLANE_SECONDS = 15.0


def down(paths: StatePaths, report: Report) -> list[str]:
    """Stop the control plane, then the replicas, each with its drain, then their proxy.

    Whatever has a pid file in the state folder was started for it, by `make up` or by a
    Dagster run; nothing else is looked at.

    Returns:
        The names of the processes that were stopped.
    """
    processes = ProcessTable(paths.run)
    names = [record.name for record in processes.running()]
    order = [name for name in ENDING if name in names]
    order += [name for name in names if name not in (*ENDING, PROXY)]
    order += [name for name in names if name == PROXY]  # last: it carries the last answers
    stopped = []
    for name in order:
        grace = CONTROL_PLANE_SECONDS if name in ENDING else STOP_SECONDS
        if processes.stop(name, grace_seconds=grace):
            report.step(f"stopped {name}")
            stopped.append(name)
    if not stopped:
        report.step("nothing runs")
    return stopped
