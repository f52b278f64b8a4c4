"""``python -m serving.torch_checks``: what this torch is, and whether it computes right.

A program for host verification, which may not import torch itself: prints one JSON line.
Without a usable GPU the questions that need one are null.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

_SIDE = 1024
_TOLERANCE = 1e-3
"""Relative; float32 sums in another order differ by far less, a wrong kernel by far more."""


def main() -> None:
    """Print the facts."""
    print(json.dumps(facts()), flush=True)


def facts() -> dict[str, Any]:
    """The facts, as ``lifecycle.host.checks.torch`` reads them."""
    device, error = _device()
    on_gpu = device.type == "cuda"
    tensor = torch.zeros(_SIDE, _SIDE, dtype=torch.float32, device=device)
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "library_folder": str(Path(torch.__file__).parent / "lib"),
        "arch_list": torch.cuda.get_arch_list(),
        "build_settings": build_settings(torch.__config__.show()),
        "devices": _devices() if on_gpu else [],
        "device": str(device),
        "tensor_bytes": tensor.numel() * tensor.element_size(),
        "graph": _graph(device) if on_gpu else None,
        "cudnn_off": _cudnn_off(device) if on_gpu else None,
        "error": error,
    }


def build_settings(text: str) -> dict[str, str]:
    """The "Build settings" of ``torch.__config__.show()``: ``NAME=value`` by commas.

    A value may hold commas and spaces (compiler flags), a name is upper case.
    """
    _, _, settings = text.partition("Build settings:")
    found = re.findall(r"([A-Z][A-Z0-9_]*)=(.*?)(?=, [A-Z][A-Z0-9_]*=|,\s*$)", settings.strip())
    return {name: value.strip() for name, value in found}


def _device() -> tuple[torch.device, str]:
    if not torch.cuda.is_available():
        return torch.device("cpu"), ""
    try:
        torch.empty(1, device="cuda:0")
    except RuntimeError as error:
        return torch.device("cpu"), str(error).partition("\n")[0][:300]
    return torch.device("cuda:0"), ""


def _devices() -> list[dict[str, Any]]:
    return [
        {
            "name": torch.cuda.get_device_name(index),
            "capability": list(torch.cuda.get_device_capability(index)),
        }
        for index in range(torch.cuda.device_count())
    ]


def _graph(device: torch.device) -> dict[str, Any]:
    """Capture as torch's documentation says: warm up on a side stream, static inputs, replay."""
    try:
        layer = nn.Linear(64, 64, device=device)
        static_input = torch.zeros(8, 64, device=device)
        fresh = torch.randn(8, 64, device=device)
        with torch.inference_mode():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    layer(static_input)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                static_output = layer(static_input)
            static_input.copy_(fresh)
            graph.replay()
            torch.cuda.synchronize()
            same = torch.allclose(static_output, layer(fresh), rtol=_TOLERANCE, atol=1e-5)
    except RuntimeError as error:
        return {"same": False, "error": str(error).partition("\n")[0][:300]}
    return {"same": bool(same), "error": ""}


def _cudnn_off(device: torch.device) -> dict[str, Any]:
    try:
        convolution = nn.Conv2d(8, 8, 3, device=device)
        picture = torch.randn(2, 8, 32, 32, device=device)
        # TF32 rounds to 10 bits of mantissa in cuDNN only: compare like with like.
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            with_cudnn = convolution(picture)
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
            without = convolution(picture)
        difference = float((with_cudnn - without).abs().max())
        bound = _TOLERANCE * float(without.abs().max())
    except RuntimeError as error:
        return {"error": str(error).partition("\n")[0][:300]}
    return {"difference": difference, "bound": bound, "error": ""}


if __name__ == "__main__":
    main()
