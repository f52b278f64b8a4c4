"""One tick of the health sensor over this host's GPUs: look, diagnose, decide."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lifecycle.host import pci, watch
from lifecycle.host.commands import AbandonedChildrenError
from lifecycle.host.recovery import decision, record
from lifecycle.host.recovery.decision import HostWatchState
from lifecycle.host.recovery.diagnosis import Course, Diagnosis, diagnose
from lifecycle.host.recovery.holders import holders
from lifecycle.host.resources import HostResource
from lifecycle.host.verify import boot_id
from registry.paths import StatePaths


@dataclass(frozen=True)
class HostSight:
    """What a tick found.

    Attributes:
        reason: how the host stands, "" where it has no GPU.
        state: for the next tick, as JSON.
        run_key: of the recovery to start, "" for none.
        fault_at: Unix seconds at which the fault was first seen.
    """

    reason: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    run_key: str = ""
    fault_at: float = 0.0


def host_tick(
    machine: HostResource, paths: StatePaths, state: Mapping[str, Any], *, busy: bool
) -> HostSight:
    """Look at the GPUs of this host; a host without one costs nothing.

    Args:
        machine: this host.
        paths: state folder with the record of recoveries.
        state: of the last tick.
        busy: a recovery of the host is queued or runs.
    """
    host = machine.host()
    history = record.load(paths)
    if not pci.gpus(host) and not history.drained:
        return HostSight()
    try:
        view = watch.look(host)
    except AbandonedChildrenError as error:
        found = Diagnosis(Course.RECOVER, str(error))
    else:
        found = diagnose(view, holders(host) if view.fault else ())
    did = decision.decide(
        machine.name,
        found,
        history,
        _state(state),
        boot_id=boot_id(host),
        busy=busy,
        now=time.time(),
    )
    return HostSight(did.reason, did.state.as_json(), did.run_key, did.fault_at)


def _state(value: Mapping[str, Any]) -> HostWatchState:
    try:
        return HostWatchState(**value)
    except TypeError:
        return HostWatchState()
