"""One look at all GPUs through NVML, in a child process with a deadline.

``probe`` never raises for what the driver does: what went wrong is in the reading. Values
that the GPU does not give are None, which means unknown and never bad.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lifecycle.host.host import Host
from lifecycle.host.nvml_errors import CRASH, HANG, NvmlCode, Standing, describe

PROBE_SECONDS = 3.0
"""Deadline of one look; the library answers within 0.1 s when the driver is loaded."""

REBOOT_ACTIONS = frozenset({2, 7})
"""Values of NVML's recovery action that ask for a reboot (node, system)."""
RESET_ACTIONS = frozenset({1, 4, 6})
"""Those that ask for a reset (of the GPU, after a drain, of the bus)."""

_CHILD = Path(__file__).with_name("nvml_child.py")


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU; its memory is None where NVML does not tell."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU at one moment; None is unknown.

    Attributes:
        index: NVML's.
        codes: return code by question that was not answered.
        clock_reasons: bits of ``nvmlClocksEventReasons``.
        ecc_corrected: errors since the driver was loaded.
        ecc_uncorrected: the same.
        remap_pending: a row is remapped at the next reset.
        remap_failed: the memory has no spare row left.
        recovery_action: NVML field 230, see `REBOOT_ACTIONS`.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_address: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    clock_reasons: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    persistence: bool | None = None
    recovery_action: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def fault(self) -> NvmlCode | None:
        """The return code that says this GPU is broken, if one did."""
        for code in self.codes.values():
            entry = describe(code)
            if entry.standing is Standing.FAULT:
                return entry
        return None


@dataclass(frozen=True)
class NvmlReading:
    """What one look gave.

    Attributes:
        gpus: in NVML's order; empty when nothing could be read.
        error: why nothing could be read, None when NVML answered.
        seconds: how long the look took.
    """

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    error: NvmlCode | None = None
    seconds: float = 0.0

    @property
    def fault(self) -> NvmlCode | None:
        """What is broken and calls for recovery: of NVML as a whole, else of the first GPU.

        None on a healthy host, and on one without a driver.
        """
        if self.error is not None:
            broken = self.error.standing in (Standing.FAULT, Standing.MISMATCH, Standing.NOT_LOADED)
            return self.error if broken else None
        return next((gpu.fault for gpu in self.gpus if gpu.fault is not None), None)

    @property
    def has_driver(self) -> bool:
        """Whether a driver is installed at all."""
        return self.error is None or self.error.standing is not Standing.ABSENT

    @property
    def needs_reboot(self) -> bool:
        """Whether the driver itself asks for a reboot (recovery action 2 or 7)."""
        return any(gpu.recovery_action in REBOOT_ACTIONS for gpu in self.gpus)


def probe(host: Host, *, deadline_seconds: float = PROBE_SECONDS) -> NvmlReading:
    """Look at every GPU once.

    Args:
        host: whose runner starts the child; on a fixture tree, its environment decides
            which ``libnvidia-ml.so.1`` is found.
        deadline_seconds: after it the child is killed and, if it hangs in the kernel, left.

    Raises:
        AbandonedChildrenError: too many earlier children hang in the kernel.
    """
    # -P: the folder of the program does not become a place to import from.
    ran = host.run([sys.executable, "-P", str(_CHILD)], deadline_seconds=deadline_seconds)
    if ran.exit_code is None:
        return NvmlReading(error=describe(HANG), seconds=ran.seconds)
    try:
        answer = json.loads(ran.stdout)
        return _reading(answer, ran.seconds)
    except (ValueError, KeyError, TypeError):
        return NvmlReading(error=describe(CRASH), seconds=ran.seconds)


def _reading(answer: dict[str, Any], seconds: float) -> NvmlReading:
    if "error" in answer:
        return NvmlReading(error=describe(answer["error"]), seconds=seconds)
    gpus = []
    for values in answer["gpus"]:
        processes = values.pop("processes", None)
        gpus.append(
            Gpu(
                **values,
                processes=None
                if processes is None
                else tuple(GpuProcess(**process) for process in processes),
            )
        )
    return NvmlReading(**{**answer, "gpus": tuple(gpus)}, seconds=seconds)
