"""What NVML's return codes say about a host, as data.

Codes and names: ``nvmlReturn_t`` in NVIDIA's NVML reference. What to do about each: the
driver's install guide and the GPU debug guidelines.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HANG = -1
"""Not NVML's: the library did not answer before the deadline."""
CRASH = -2
"""Not NVML's: the process that asked died, or wrote what can't be read."""


class Standing(StrEnum):
    """What a return code means for the host."""

    ABSENT = "absent"
    """No driver is installed: a machine without a GPU, or an install to do."""
    NOT_LOADED = "not_loaded"
    """The driver is installed and its kernel module is not loaded."""
    MISMATCH = "mismatch"
    """The library was upgraded under the loaded module."""
    FAULT = "fault"
    """The GPU or its driver is broken now: recover the host."""
    UNKNOWN = "unknown"
    """Says nothing about health: not supported, not permitted, no such function."""


@dataclass(frozen=True)
class NvmlCode:
    """One return code.

    Attributes:
        code: NVML's number; negative ones are ours.
        name: as nvidia-ml-py calls it.
        standing: what it means for the host.
        meaning: in words.
        fix: what a person does about it.
    """

    code: int
    name: str
    standing: Standing
    meaning: str
    fix: str = ""


_LADDER = "recover the host: `recover_host` in the Dagster UI"

_CODES = {
    entry.code: entry
    for entry in (
        NvmlCode(
            3, "NotSupported", Standing.UNKNOWN, "this GPU has no such feature", "nothing to do"
        ),
        NvmlCode(4, "NoPermission", Standing.UNKNOWN, "this user may not ask that", "ask as root"),
        NvmlCode(
            9,
            "DriverNotLoaded",
            Standing.NOT_LOADED,
            "the nvidia kernel module is not loaded",
            "sudo modprobe nvidia; if it refuses: nouveau, DKMS or Secure Boot is in the way",
        ),
        NvmlCode(10, "Timeout", Standing.FAULT, "the GPU did not answer the driver", _LADDER),
        NvmlCode(
            12,
            "LibraryNotFound",
            Standing.ABSENT,
            "there is no libnvidia-ml.so.1: no driver is installed",
            "install the NVIDIA driver, if the machine has a GPU",
        ),
        NvmlCode(
            13,
            "FunctionNotFound",
            Standing.UNKNOWN,
            "the installed driver is too old to know",
            "nothing to do, or upgrade the driver",
        ),
        NvmlCode(15, "GpuIsLost", Standing.FAULT, "the GPU has fallen off the bus", _LADDER),
        NvmlCode(16, "ResetRequired", Standing.FAULT, "the GPU must be reset", _LADDER),
        NvmlCode(
            18,
            "LibRmVersionMismatch",
            Standing.MISMATCH,
            "the driver's user space was upgraded under its loaded kernel module",
            "reload the modules (`recover_host`) or reboot; then hold the packages: "
            "apt-mark hold 'nvidia-*' 'libnvidia-*'",
        ),
        NvmlCode(
            999, "Unknown", Standing.FAULT, "the driver failed in a way it can't name", _LADDER
        ),
        NvmlCode(HANG, "Hang", Standing.FAULT, "NVML did not answer in time", _LADDER),
        NvmlCode(CRASH, "Crash", Standing.FAULT, "the process that asked NVML died", _LADDER),
    )
}


def describe(code: int) -> NvmlCode:
    """What a return code means; one that is not in the table says nothing of health."""
    known = _CODES.get(code)
    return known or NvmlCode(code, f"Code{code}", Standing.UNKNOWN, f"NVML returned {code}")
