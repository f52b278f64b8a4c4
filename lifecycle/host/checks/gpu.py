"""Group ``gpu``: each card's health, through NVML and the kernel log."""

from __future__ import annotations

from collections.abc import Callable

from lifecycle.host import kmsg, xid
from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection
from lifecycle.host.nvml import REBOOT_ACTIONS, RESET_ACTIONS, Gpu
from lifecycle.host.nvml_errors import Standing
from lifecycle.host.xid import XidAction

_HARDWARE_SLOWDOWN = 0x08 | 0x40 | 0x80
"""nvmlClocksEventReasons: HwSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown."""
_SOFTWARE_THERMAL = 0x20

_SEVERITY = {
    XidAction.RESTART_APP: 1,
    XidAction.RESET_GPU: 2,
    XidAction.WORKFLOW: 3,
    XidAction.REBOOT: 4,
}

_RECOVER = "recover the host: job recover_host in the Dagster UI"


def answers(inspection: Inspection) -> Outcome:
    """NVML answers for every card."""
    fault = inspection.nvml.fault
    if fault is not None:
        return failed(f"NVML: {fault.meaning} ({fault.name}, {fault.code})", fault.fix)
    error = inspection.nvml.error
    if error is not None:
        status = failed if error.standing is Standing.ABSENT else unknown
        return status(f"NVML: {error.meaning} ({error.name}, {error.code})", error.fix)
    return passed(
        f"{len(inspection.nvml.gpus)} card(s) answered in {inspection.nvml.seconds:.2f} s"
    )


def recovery_action(inspection: Inspection) -> Outcome | None:
    """The driver asks for no reset and no reboot (field 230)."""

    def judge(gpu: Gpu) -> Outcome | None:
        if gpu.recovery_action in REBOOT_ACTIONS:
            return failed(f"the driver asks for a reboot (action {gpu.recovery_action})", "reboot")
        if gpu.recovery_action in RESET_ACTIONS:
            return failed(f"the driver asks for a reset (action {gpu.recovery_action})", _RECOVER)
        return None

    return _each(inspection, "recovery_action", judge, "no action is asked for")


def persistence(inspection: Inspection) -> Outcome | None:
    """The driver stays initialised between clients."""

    def judge(gpu: Gpu) -> Outcome | None:
        if gpu.persistence is False:
            return warned(
                "persistence mode is off: each first client waits for the driver",
                "sudo systemctl enable --now nvidia-persistenced",
            )
        return None

    return _each(inspection, "persistence", judge, "persistence mode is on")


def ecc(inspection: Inspection) -> Outcome | None:
    """No uncorrected memory error since the driver was loaded."""

    def judge(gpu: Gpu) -> Outcome | None:
        if gpu.ecc_uncorrected:
            return failed(f"{gpu.ecc_uncorrected} uncorrected ECC errors", f"drain it; {_RECOVER}")
        return None

    return _each(
        inspection,
        "ecc_uncorrected",
        judge,
        "no uncorrected ECC error (which is no proof of health)",
    )


def remapped_rows(inspection: Inspection) -> Outcome | None:
    """No row waits to be remapped, and spare rows are left."""

    def judge(gpu: Gpu) -> Outcome | None:
        if gpu.remap_failed:
            return failed("a row could not be remapped: no spare is left", "replace the card (RMA)")
        if gpu.remap_pending:
            return warned("a row is remapped at the next reset", f"at a quiet moment: {_RECOVER}")
        return None

    return _each(inspection, "remap_failed", judge, "no row is pending, none failed")


def clock_reasons(inspection: Inspection) -> Outcome | None:
    """Nothing in hardware holds the clocks down."""

    def judge(gpu: Gpu) -> Outcome | None:
        reasons = gpu.clock_reasons or 0
        if reasons & _HARDWARE_SLOWDOWN:
            return failed(
                f"the hardware slows the clocks (reasons 0x{reasons:x})",
                "check cooling, power cables and the power supply",
            )
        if reasons & _SOFTWARE_THERMAL:
            return warned(
                f"the driver slows the clocks for heat (reasons 0x{reasons:x})", "check cooling"
            )
        return None

    return _each(inspection, "clock_reasons", judge, "no slowdown by hardware or heat")


def temperature(inspection: Inspection) -> Outcome | None:
    """There is a margin below the slowdown."""
    limit = inspection.expected.gpu.max_temperature_celsius

    def judge(gpu: Gpu) -> Outcome | None:
        degrees = gpu.temperature_celsius or 0
        if degrees >= limit:
            return warned(f"{degrees} °C (limit {limit})", "check air flow, fans and filters")
        return None

    highest = max((gpu.temperature_celsius or 0 for gpu in inspection.nvml.gpus), default=0)
    return _each(inspection, "temperature_celsius", judge, f"at most {highest} °C")


def pcie_width(inspection: Inspection) -> Outcome | None:
    """Every lane of the slot is used; the width, unlike the speed, doesn't drop when idle."""

    def judge(gpu: Gpu) -> Outcome | None:
        if gpu.pcie_width is not None and gpu.pcie_width < (gpu.pcie_width_max or 0):
            return warned(
                f"PCIe x{gpu.pcie_width} of x{gpu.pcie_width_max}",
                "reseat the card and its riser; look for a shared slot in the board's manual",
            )
        return None

    return _each(inspection, "pcie_width", judge, "full PCIe width")


def xid_events(inspection: Inspection) -> Outcome:
    """No Xid in the kernel's log since boot."""
    found = xid.events(kmsg.read(inspection.host))
    if not found:
        return passed("no Xid in the kernel's log since boot")
    # Of several, the one that asks for most; of equals, the newest.
    worst = max(found, key=lambda event: (_SEVERITY.get(event.action, 0), event.sequence))
    evidence = (
        f"Xid {worst.xid} of {worst.pci_address}, {worst.seconds:.0f} s after boot "
        f"({len(found)} Xid lines since then): {worst.text[:160]}"
    )
    fix = worst.action.value
    if worst.action is XidAction.RESET_GPU:
        fix += f"; {_RECOVER}"
    elif worst.action is XidAction.REBOOT:
        fix += ", once its replicas are drained (job drain_host)"
    recovered = inspection.nvml.error is None and inspection.nvml.fault is None
    if _SEVERITY.get(worst.action, 0) < _SEVERITY[XidAction.RESET_GPU]:
        return warned(evidence, fix)
    if recovered:
        return warned(f"{evidence}; the card answers now", f"watch it; when it comes again: {fix}")
    return failed(evidence, fix)


def foreign_processes(inspection: Inspection) -> Outcome | None:
    """Only our engines compute on the cards."""
    ours = {process.pid for process in inspection.serving}

    def judge(gpu: Gpu) -> Outcome | None:
        strangers = [process.pid for process in gpu.processes or () if process.pid not in ours]
        if strangers:
            names = ", ".join(_name(inspection, pid) for pid in strangers[:4])
            return warned(
                f"not of Ironworks: {names}", "stop them, or give them a card of their own"
            )
        return None

    return _each(inspection, "processes", judge, "no foreign process")


def _each(
    inspection: Inspection, field: str, judge: Callable[[Gpu], Outcome | None], fine: str
) -> Outcome | None:
    """The worst that ``judge`` finds among the cards."""
    gpus = inspection.nvml.gpus
    if not gpus:
        return None
    found = [(gpu, outcome) for gpu in gpus if (outcome := judge(gpu)) is not None]
    if found:
        gpu, worst = min(found, key=lambda pair: pair[1].status != "fail")
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Outcome(worst.status, f"GPU {gpu.index}: {worst.evidence}{more}", worst.fix)
    if all(getattr(gpu, field) is None for gpu in gpus):
        return unknown("NVML does not tell")
    return passed(fine)


def _name(inspection: Inspection, pid: int) -> str:
    return f"{(inspection.host.read(f'/proc/{pid}/comm') or 'gone').strip()} (pid {pid})"


GROUP = Group(
    "gpu",
    "GPUs",
    (
        answers,
        recovery_action,
        persistence,
        ecc,
        remapped_rows,
        clock_reasons,
        temperature,
        pcie_width,
        xid_events,
        foreign_processes,
    ),
    needs_gpu=True,
)
