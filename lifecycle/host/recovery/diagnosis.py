"""What a broken host needs: a pure decision over one look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lifecycle.host.nvml import RESET_ACTIONS, Gpu
from lifecycle.host.nvml_errors import HANG, Standing
from lifecycle.host.recovery.holders import Holder
from lifecycle.host.watch import GpuState, HostView
from lifecycle.host.xid import XidAction

FRESH_SECONDS = 300.0
"""An Xid that asks for a reset counts for so long; later looks at NVML must show the fault."""


class Course(StrEnum):
    """What to do about a host."""

    NONE = "none"
    RECOVER = "recover"
    REBOOT = "reboot"


@dataclass(frozen=True)
class Diagnosis:
    """What a host needs, and why.

    Attributes:
        course: what to do.
        reason: in words.
        gpus: NVML indices of the GPUs to reset; empty when no single one can be named.
        resettable: whether ``nvidia-smi -r`` can help; it can't where NVML itself is unusable.
    """

    course: Course
    reason: str
    gpus: tuple[int, ...] = ()
    resettable: bool = False


def diagnose(
    view: HostView, holders: Sequence[Holder] = (), *, recovered_at: float = 0.0
) -> Diagnosis:
    """Decide what the host needs.

    Args:
        view: one look at it.
        holders: processes that hold its device files.
        recovered_at: seconds since boot of the last recovery; older Xids are dealt with.
    """
    if view.state in (GpuState.NONE, GpuState.NO_DRIVER):
        return Diagnosis(Course.NONE, f"nothing to recover: {view.state}")
    reboot = _reboot_reason(view, holders, recovered_at)
    if reboot:
        return Diagnosis(Course.REBOOT, reboot)
    if view.fault:
        return Diagnosis(
            Course.RECOVER, view.fault, _broken_gpus(view), resettable=_resettable(view)
        )
    asked = [gpu for gpu in view.nvml.gpus if gpu.recovery_action in RESET_ACTIONS]
    if asked:
        indices = tuple(gpu.index for gpu in asked)
        return Diagnosis(
            Course.RECOVER, f"the driver asks for a reset of GPU {indices}", indices, True
        )
    for event in reversed(view.xids):
        fresh = event.seconds > recovered_at and view.uptime - event.seconds < FRESH_SECONDS
        if fresh and event.action is XidAction.RESET_GPU:
            indices = tuple(g.index for g in view.nvml.gpus if g.pci_address == event.pci_address)
            return Diagnosis(Course.RECOVER, f"Xid {event.xid}: {event.text}", indices, True)
    return Diagnosis(Course.NONE, "the GPUs answer")


def _reboot_reason(view: HostView, holders: Sequence[Holder], recovered_at: float) -> str:
    """Why nothing but a reboot helps, "" if that is not so."""
    if view.nvml.needs_reboot:
        actions = [gpu.recovery_action for gpu in view.nvml.gpus]
        return f"the driver asks for a reboot (NVML recovery action {actions})"
    for event in view.xids:
        fresh = event.seconds > recovered_at and view.uptime - event.seconds < FRESH_SECONDS
        # An old one of a GPU that answers again was dealt with by somebody.
        if event.action is XidAction.REBOOT and (view.fault or fresh):
            return f"Xid {event.xid} on {event.pci_address} needs a reboot: {event.text}"
    hung = [holder for holder in holders if holder.hangs]
    if hung and view.fault:
        return (
            f"process {hung[0].pid} ({hung[0].name}) hangs in the kernel (state D) "
            f"and holds {hung[0].device}"
        )
    return ""


def _broken_gpus(view: HostView) -> tuple[int, ...]:
    named = tuple(gpu.index for gpu in view.nvml.gpus if _is_broken(gpu))
    return named or tuple(range(len(view.on_bus)))


def _is_broken(gpu: Gpu) -> bool:
    return gpu.fault is not None or gpu.recovery_action in RESET_ACTIONS


def _resettable(view: HostView) -> bool:
    """``nvidia-smi`` goes through NVML: where that hangs or can't start, so does a reset."""
    error = view.nvml.error
    return error is None or (error.standing is Standing.FAULT and error.code != HANG)
