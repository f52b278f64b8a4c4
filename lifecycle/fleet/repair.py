"""What is done to one broken replica before it is reconciled: as little as helps.

A stuck engine is killed and its replica brings it back, with the other models serving on. A
process that does not answer can't drain and is killed. Everything else is the reconcile's.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil

from lifecycle.fleet.faults import Fault
from lifecycle.fleet.observe import ReplicaObservation
from lifecycle.fleet.supervisors.base import ReplicaSupervisor

HUNG_GRACE_SECONDS = 3.0
"""A process that does not answer gets so long to prove that it still can end by itself."""
UNREADY_GRACE_SECONDS = 15.0


def repair(fault: Fault, seen: ReplicaObservation | None, supervisor: ReplicaSupervisor) -> str:
    """Act on a fault; safe to repeat.

    Args:
        fault: what `lifecycle.fleet.recovery.classify` has just found.
        seen: the replica, None for the proxy.
        supervisor: of the replica.

    Returns:
        What was done, in words.
    """
    if seen is None:
        return "nothing to end: the proxy is started anew"
    match fault:
        case Fault.STUCK:
            killed = kill_engines(seen)
            if killed:
                return f"killed the engine, pid {', '.join(map(str, killed))}"
            supervisor.stop(seen.service, grace_seconds=HUNG_GRACE_SECONDS)
            return "stopped the replica: its engine could not be named"
        case Fault.HUNG:
            supervisor.stop(seen.service, grace_seconds=HUNG_GRACE_SECONDS)
            return "stopped the process, which did not answer"
        case Fault.NOT_READY:
            supervisor.stop(seen.service, grace_seconds=UNREADY_GRACE_SECONDS)
            return "stopped the replica, which did not become ready"
        case _:
            return "nothing to end"


def kill_engines(seen: ReplicaObservation) -> list[int]:
    """SIGKILL the engines of a replica of this host; the pids that were killed.

    Only a child of the replica's own process is touched: the pid is the replica's word, and
    may be of another host or given away again.
    """
    killed = []
    for model in seen.models.values():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if not model.engine_pid or psutil.Process(model.engine_pid).ppid() != seen.pid:
                continue
            descriptor = os.pidfd_open(model.engine_pid)
            try:
                # Looked at again: between the look and the descriptor it may have ended.
                if psutil.Process(model.engine_pid).ppid() == seen.pid:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    killed.append(model.engine_pid)
            finally:
                os.close(descriptor)
    return killed
