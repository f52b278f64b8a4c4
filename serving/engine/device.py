"""The device an engine computes on: chosen once, described in plain errors."""

from __future__ import annotations

import torch

from registry.errors import InputError


def open_device(name: str, threads: int) -> torch.device:
    """Check that a device is usable and set torch's threads.

    Args:
        name: ``cpu``, ``cuda`` or ``cuda:0``.
        threads: intra-op threads on CPU; 0 leaves torch's choice, one per physical core.

    Raises:
        InputError: no such device here.
    """
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{device.type} is no device that models are served on")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).partition("\n")[0][:120]
        raise InputError(
            f"device {name[:40]!r} can't be used: {text}",
            where="device",
            fix="use cpu, or cuda:0 with a CUDA build of torch",
        ) from error
    if threads > 0:
        torch.set_num_threads(threads)
    return device
