"""Which device ``auto`` means, and how much of each device is in use; through NVML, not torch.

The API process must not import torch: it would hold hundreds of megabytes and a CUDA
context for nothing.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes in use and in total on one GPU, by every process."""

    device: str
    used_bytes: int
    total_bytes: int


def resolve_device(setting: str) -> str:
    """The torch device of a setting: ``auto`` is ``cuda:0`` where a GPU can be used.

    A GPU counts only when the installed torch build can drive it: the CPU build's
    version ends in ``+cpu``.
    """
    if setting == "cuda":
        return "cuda:0"
    if setting != "auto":
        return setting
    if importlib.metadata.version("torch").endswith("+cpu"):
        return "cpu"
    return "cuda:0" if device_memory() else "cpu"


def device_memory() -> list[DeviceMemory]:
    """Memory of each GPU that NVML sees; empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index))
            found.append(DeviceMemory(f"cuda:{index}", int(memory.used), int(memory.total)))
        return found
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
