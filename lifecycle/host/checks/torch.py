"""Group ``torch``: the installed torch is the one that was asked for, and computes right.

torch runs in a process of its own (``serving.torch_checks``); its answers are judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection

_REINSTALL = "`make install` installs torch again from the locked requirements"
_TENSOR_BYTES = 1024 * 1024 * 4
"""1024 × 1024 float32 (L21)."""
_ON, _OFF = {"1", "on", "true", "yes"}, {"0", "off", "false", "no"}


def imports(inspection: Inspection) -> Outcome:
    """Torch can be imported."""
    torch = inspection.torch
    if torch.error or torch.facts.get("error"):
        return failed(f"torch does not work: {torch.error or torch.facts['error']}", _REINSTALL)
    facts = torch.facts
    return passed(f"torch {facts['version']}, CUDA {facts.get('cuda') or 'none'}")


def flags(inspection: Inspection) -> Outcome | None:
    """Every flag that was requested is in the build (L24)."""
    wanted, facts = inspection.expected.torch.flags, inspection.torch.facts
    if not wanted or not facts:
        return None
    settings: dict[str, str] = dict(facts.get("build_settings") or {})
    ignored = []
    for name, value in wanted.items():
        seen = settings.get(name)
        if seen is None or not _same(str(value), seen):
            ignored.append(f"{name}={value} was requested, the build has {seen or 'no such flag'}")
    if ignored:
        return failed(
            "; ".join(ignored) + " (torch.__config__.show())",
            "build again with a clean build folder; an unknown variable is ignored in silence",
        )
    return passed(f"{len(wanted)} requested flags are in the build")


def architectures(inspection: Inspection) -> Outcome | None:
    """The build has code for every card here."""
    facts = inspection.torch.facts
    devices = facts.get("devices") or []
    if not devices:
        return None
    built = [str(name) for name in facts.get("arch_list") or []]
    for device in devices:
        major, minor = device["capability"]
        if not runs_on((int(major), int(minor)), built):
            return failed(
                f"{device['name']} is sm_{major}{minor}; torch has {', '.join(built) or 'none'}",
                f"install a build of torch that has sm_{major}{minor}, or build it with "
                f"TORCH_CUDA_ARCH_LIST={major}.{minor}",
            )
    return passed(f"{', '.join(built)} cover {len(devices)} card(s)")


def runs_on(capability: tuple[int, int], built: Iterable[str]) -> bool:
    """Whether code of one of the ``built`` architectures runs on a card.

    Machine code (``sm_86``) runs on the same major and any higher minor, PTX
    (``compute_80``) on anything newer; ``sm_90a`` on that very card only. Source: CUDA C++
    Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    for name in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if found is None:
            continue
        compiled = (int(found[2]), int(found[3]))
        if found[4] == "a":
            matches = compiled == capability
        elif found[1] == "sm" or found[4] == "f":
            matches = compiled[0] == capability[0] and compiled[1] <= capability[1]
        else:
            matches = compiled <= capability
        if matches:
            return True
    return False


def tensor_size(inspection: Inspection) -> Outcome | None:
    """1024 × 1024 float32 are 4 MiB on the device (L21)."""
    size = inspection.torch.facts.get("tensor_bytes")
    if size is None:
        return None
    where = inspection.torch.facts.get("device", "cpu")
    if size != _TENSOR_BYTES:
        return failed(f"1024 × 1024 float32 are {size} bytes on {where}", _REINSTALL)
    return passed(f"1024 × 1024 float32 are 4.0 MiB on {where}")


def cuda_graph(inspection: Inspection) -> Outcome | None:
    """A captured CUDA graph replays to the same numbers (L22)."""
    graph = inspection.torch.facts.get("graph")
    if graph is None:
        return None
    if not graph.get("same"):
        why = graph.get("error") or "the replay gave other numbers than the plain run"
        return failed(f"CUDA graph: {why}", "update the driver, or torch; serve without graphs")
    return passed("a captured graph replays to the same numbers")


def cudnn_off(inspection: Inspection) -> Outcome | None:
    """A convolution gives the same with and without cuDNN (L23)."""
    result = inspection.torch.facts.get("cudnn_off")
    if result is None:
        return None
    if result.get("error"):
        return failed(f"cuDNN: {result['error']}", "see group cudnn; reinstall cuDNN or torch")
    difference, bound = float(result["difference"]), float(result["bound"])
    if not difference <= bound:
        return failed(
            f"a convolution differs by {difference:.2g} with cuDNN off (allowed {bound:.2g})",
            "see group cudnn: another cuDNN than torch was built with may be loaded",
        )
    return passed(f"a convolution differs by {difference:.2g} with cuDNN off")


def device_visible(inspection: Inspection) -> Outcome | None:
    """Torch sees the GPUs that NVML sees."""
    facts, seen = inspection.torch.facts, len(inspection.nvml.gpus)
    if not facts or not seen:
        return None
    if not facts.get("cuda"):
        return warned(
            f"{seen} GPU(s) here, and torch is a build without CUDA ({facts['version']})",
            "`make install` on the machine with the GPU takes the CUDA lock",
        )
    if len(facts.get("devices") or []) != seen:
        return unknown(
            f"NVML sees {seen} GPU(s), torch {len(facts.get('devices') or [])}",
            "CUDA_VISIBLE_DEVICES hides some, or the driver is broken (group driver)",
        )
    return passed(f"torch sees all {seen} GPU(s)")


def _same(wanted: str, seen: str) -> bool:
    wanted, seen = wanted.strip().lower(), seen.strip().lower()
    return wanted == seen or any({wanted, seen} <= words for words in (_ON, _OFF))


GROUP = Group(
    "torch",
    "torch",
    (imports, device_visible, flags, architectures, tensor_size, cuda_graph, cudnn_off),
)
