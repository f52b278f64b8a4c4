"""One tick's look at the host, for the sensor ``health_probes``: look, diagnose, decide."""

from __future__ import annotations

from typing import Any

from lifecycle.host.commands import AbandonedChildrenError
from lifecycle.host.host import Host
from lifecycle.host.recovery import record
from lifecycle.host.recovery.decision import HostDecision, HostWatchState, decide
from lifecycle.host.recovery.diagnosis import Course, Diagnosis, diagnose
from lifecycle.host.recovery.rungs_before import uptime_of_last_recovery
from lifecycle.host.watch import look
from registry.paths import StatePaths

TICK_SECONDS = 2.0
"""Deadline of a tick's look: shorter than the ladder's own, which looks twice again."""


def consider(
    name: str, host: Host, paths: StatePaths, state: HostWatchState, *, busy: bool
) -> HostDecision:
    """Look at a host and decide whether to start ``recover_host``.

    Args:
        name: of the host, for the run key.
        host: the machine.
        paths: state folder, with the record of recoveries.
        state: what the last tick's decision said to remember.
        busy: whether a recovery of this host is queued or runs; the look is then left out,
            since it would hold the device that the ladder wants free.
    """
    now = host.clock.time()
    history = record.load(paths)
    if busy:
        diagnosis = Diagnosis(Course.RECOVER, "the ladder is at work")
    else:
        try:
            view = look(host, deadline_seconds=TICK_SECONDS)
            diagnosis = diagnose(view, recovered_at=uptime_of_last_recovery(host, history))
        except AbandonedChildrenError as error:
            diagnosis = Diagnosis(Course.REBOOT, str(error))
    boot_id = (host.read("/proc/sys/kernel/random/boot_id") or "").strip()
    return decide(name, diagnosis, history, state, boot_id=boot_id, busy=busy, now=now)


def run_config(decision: HostDecision) -> dict[str, Any]:
    """Run configuration of ``recover_host`` for a decision."""
    return {"ops": {"confirm_fault": {"config": {"fault_at": decision.fault_at}}}}
