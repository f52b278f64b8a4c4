"""What a broken host needs: a pure decision over one look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lifecycle.host.nvml import RESET_ACTIONS
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
        gpus: NVML indices of the GPUs to reset; empty where NVML can't name one: then
            ``nvidia-smi``, which goes through it, can't reset one either.
        addresses: on the PCI bus, of all that are broken.
    """

    course: Course
    reason: str
    gpus: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()


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
        return _recover(view, view.fault, _broken(view))
    asked = [gpu.index for gpu in view.nvml.gpus if gpu.recovery_action in RESET_ACTIONS]
    if asked:
        return _recover(view, f"the driver asks for a reset of GPU {asked}", asked)
    for event in reversed(view.xids):
        fresh = event.seconds > recovered_at and view.uptime - event.seconds < FRESH_SECONDS
        if fresh and event.action is XidAction.RESET_GPU:
            named = [g.index for g in view.nvml.gpus if g.pci_address == event.pci_address]
            return _recover(view, f"Xid {event.xid}: {event.text}", named)
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


def _recover(view: HostView, reason: str, named: Sequence[int]) -> Diagnosis:
    """Name what is broken: by index where NVML can, else by what it does not see on the bus."""
    bus = [gpu.address for gpu in view.on_bus]
    seen = {gpu.pci_address for gpu in view.nvml.gpus}
    # NVML numbers GPUs in the order of their bus addresses.
    addresses = [bus[index] for index in named if index < len(bus)]
    addresses = addresses or [address for address in bus if address not in seen]
    return Diagnosis(Course.RECOVER, reason, tuple(named), tuple(addresses))


def _broken(view: HostView) -> list[int]:
    return [
        gpu.index
        for gpu in view.nvml.gpus
        if gpu.fault is not None or gpu.recovery_action in RESET_ACTIONS
    ]
