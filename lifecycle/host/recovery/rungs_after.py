"""Rungs 8 and 9: daemons, proof, replicas."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lifecycle.host import pci
from lifecycle.host.recovery import record
from lifecycle.host.recovery.climb import Climb, Site, Verdict
from lifecycle.host.watch import GpuState, look

DAEMONS_SECONDS = 5.0
VERIFY_SECONDS = 5.0
_TENSOR_SECONDS_PER_GPU = 1.0

_TENSOR = Path(__file__).with_name("tensor_child.py")
_NO_CUDA = 3


def start_daemons(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 8a: start the units that the ladder has stopped, in this climb or an earlier one."""
    history = record.load(site.paths)
    if not history.stopped_units:
        return climb, "none was stopped"
    ran = site.host.run(
        ["systemctl", "start", *history.stopped_units], deadline_seconds=DAEMONS_SECONDS
    )
    if not ran.ok:
        # Serving works without them: it is said, and it stops nothing.
        return climb, f"not all started: {ran.why}"
    record.save(site.paths, replace(history, stopped_units=()))
    return climb, f"started: {', '.join(history.stopped_units)}"


def verify_seconds(site: Site) -> float:
    """Deadline of `verify`: each GPU needs a context of its own."""
    return VERIFY_SECONDS + _TENSOR_SECONDS_PER_GPU * len(pci.gpus(site.host))


def verify(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 8b: NVML sees every GPU, and each one writes and reads back 4 MiB."""
    view = look(site.host, deadline_seconds=VERIFY_SECONDS / 2)
    if view.state is not GpuState.OK:
        if view.state is GpuState.NONE:
            return climb, "there is no GPU on this machine"
        reason = view.fault or f"the GPUs are in state {view.state}"
        return replace(climb, verdict=Verdict.FAILED, reason=reason), reason
    ran = site.host.run(
        [sys.executable, "-P", str(_TENSOR)],
        deadline_seconds=verify_seconds(site) - VERIFY_SECONDS / 2,
    )
    if ran.exit_code == _NO_CUDA:
        return climb, f"NVML sees {len(view.nvml.gpus)} GPUs; no libcuda.so.1 to compute with"
    if not ran.ok:
        reason = f"NVML answers, but a tensor on the GPU fails: {ran.why}"
        return replace(climb, verdict=Verdict.FAILED, reason=reason), reason
    return climb, f"NVML sees {len(view.nvml.gpus)} GPUs; {ran.stdout.strip()}"


def start_replicas(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 9: start what the ladder has drained, wait for ``/readyz``, back into rotation."""
    history = record.load(site.paths)
    if history.drained:
        missing = site.replicas.start(
            history.drained, "the host has recovered", seconds=site.ready_seconds
        )
        if missing:
            reason = f"the driver is back, but not ready in time: {', '.join(missing)}"
            return replace(climb, verdict=Verdict.FAILED, reason=reason), reason
    record.save(site.paths, replace(history, drained=()))
    climb = replace(climb, verdict=Verdict.SERVING, serving_at=site.host.clock.time())
    return climb, f"ready: {', '.join(history.drained) or 'no replica was out of rotation'}"
