"""Which process manager runs the replicas of this host."""

from __future__ import annotations

import os

from lifecycle.fleet.supervisors.base import ReplicaSupervisor
from lifecycle.fleet.supervisors.local import LocalSupervisor
from lifecycle.fleet.supervisors.systemd import SystemdSupervisor
from registry.errors import InputError
from registry.paths import StatePaths

SUPERVISOR_VARIABLE = "IRONWORKS_SUPERVISOR"


def choose_supervisor(paths: StatePaths) -> ReplicaSupervisor:
    """The one that IRONWORKS_SUPERVISOR names: ``local`` (the default) or ``systemd``.

    Raises:
        InputError: it names another.
    """
    name = os.environ.get(SUPERVISOR_VARIABLE) or "local"
    if name == "local":
        return LocalSupervisor(paths)
    if name == "systemd":
        return SystemdSupervisor(paths)
    raise InputError(
        f"{name[:40]!r} is not a process manager",
        where=SUPERVISOR_VARIABLE,
        fix="use local or systemd",
    )
