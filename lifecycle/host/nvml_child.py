"""Asks NVML everything once and prints it as JSON; run as a process of its own.

A program, not a module to import: a call into NVML may hang in the kernel for ever, and
nothing in the asking process can end it. A fresh process per look also never keeps an old
library after a driver change, and holds no ``/dev/nvidia*`` open between two looks, which
would block a reset.

Prints the fields of `lifecycle.host.nvml.NvmlReading`. A value that the GPU or the user's rights
don't give is null; its return code is under ``codes``.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import pynvml

# Codes after which asking the same GPU on has no point.
_BROKEN = {10, 15, 16, 999}


class _Asker:
    """Calls NVML and keeps the return code of each call that failed."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def __call__(self, name: str, ask: Callable[[], Any]) -> Any:
        if self.broken is not None:
            return None
        try:
            return ask()
        except pynvml.NVMLError as error:
            self.codes[name] = int(error.value)
            return None

    @property
    def broken(self) -> int | None:
        """The first code that says the GPU is broken."""
        return next((code for code in self.codes.values() if code in _BROKEN), None)


def _gpu(index: int) -> dict[str, Any]:
    ask = _Asker()
    handle = ask("handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    gpu: dict[str, Any] = {"index": index}
    if handle is None:
        return {**gpu, "codes": ask.codes}
    memory = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    utilization = ask("utilization", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    power = ask("power", lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    remapped = ask("remapped", lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    persistence = ask("persistence", lambda: pynvml.nvmlDeviceGetPersistenceMode(handle))
    processes = ask("processes", lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return {
        **gpu,
        "uuid": ask("uuid", lambda: pynvml.nvmlDeviceGetUUID(handle)),
        "name": ask("name", lambda: pynvml.nvmlDeviceGetName(handle)),
        "pci_address": ask("pci", lambda: _pci_address(handle)),
        "memory_total_bytes": memory and int(memory.total),
        "memory_used_bytes": memory and int(memory.used),
        "utilization_percent": utilization and int(utilization.gpu),
        "memory_utilization_percent": utilization and int(utilization.memory),
        "temperature_celsius": ask(
            "temperature",
            lambda: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
        ),
        "power_watts": None if power is None else power / 1000,
        "pcie_width": ask("pcie", lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "pcie_width_max": ask("pcie_max", lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "clock_reasons": ask(
            "clock_reasons", lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        ),
        "ecc_corrected": ask("ecc_corrected", lambda: _ecc(handle, corrected=True)),
        "ecc_uncorrected": ask("ecc_uncorrected", lambda: _ecc(handle, corrected=False)),
        "rows_remapped_corrected": remapped and remapped[0],
        "rows_remapped_uncorrected": remapped and remapped[1],
        "remap_pending": remapped and bool(remapped[2]),
        "remap_failed": remapped and bool(remapped[3]),
        "persistence": None if persistence is None else bool(persistence),
        "recovery_action": ask("recovery_action", lambda: _recovery_action(handle)),
        "processes": None
        if processes is None
        else [{"pid": int(p.pid), "memory_bytes": p.usedGpuMemory} for p in processes],
        "codes": ask.codes,
    }


def _ecc(handle: Any, *, corrected: bool) -> int:
    """ECC errors since the driver was loaded."""
    kind = (
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        if corrected
        else pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    )
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))


def _pci_address(handle: Any) -> str:
    """As sysfs writes it: four digits of domain, lower case."""
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _recovery_action(handle: Any) -> int:
    """Field 230: what the driver itself asks for (0 nothing, 1 reset, 2 node reboot, …)."""
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if value.nvmlReturn != 0:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def _look() -> dict[str, Any]:
    ask = _Asker()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"error": int(error.value)}
    cuda = ask("cuda", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return {"error": int(error.value)}
    return {
        "driver_version": ask("driver", pynvml.nvmlSystemGetDriverVersion),
        "nvml_version": ask("nvml", pynvml.nvmlSystemGetNVMLVersion),
        # 12040 is 12.4.
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "gpus": [_gpu(index) for index in range(count)],
    }


def _end_with_parent() -> None:
    """Be killed when the asking process dies (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    json.dump(_look(), sys.stdout)
