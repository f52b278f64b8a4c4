"""Group ``serving``: what only running engines show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lifecycle.host.checks.mounts import gib
from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection
from lifecycle.host.serving_processes import ServingProcess, read_if_allowed

_MUCH_MORE = 1.5
_MUCH_MORE_BYTES = 1 << 30
"""Reserved ≫ allocated: half as much again, and more than allocator rounding explains."""
_PROCESS_BYTES = 4 << 30
"""Host memory of an engine beside weights and cache: libraries and a CUDA context are 1 to 3."""
_INDUCTOR = "/torchinductor_"
"""Folder of kernels that torch.compile made (``torch._inductor.runtime.cache_dir_utils``)."""
_ON = {"1", "true", "yes", "on"}


def device_memory(inspection: Inspection) -> Outcome | None:
    """Torch does not reserve far more than it uses (L37)."""
    seen = []
    for process, engine in _engines(inspection):
        reserved = int(engine.get("device_bytes") or 0)
        allocated = engine.get("device_allocated_bytes")
        if allocated is None:
            continue
        text = f"{_who(process, engine)}: {gib(reserved)} reserved, {gib(int(allocated))} allocated"
        seen.append(text)
        slack = reserved - int(allocated)
        if slack > _MUCH_MORE_BYTES and reserved > _MUCH_MORE * int(allocated):
            return warned(
                f"{text}: fragmented, or leaked",
                "PYTORCH_ALLOC_CONF=expandable_segments:True in the unit; swap the model to itself "
                "now: an unload is the end of the process and frees everything",
            )
    return passed("; ".join(seen)) if seen else None


def process_memory(inspection: Inspection) -> Outcome | None:
    """An engine's host memory is explained by what it holds."""
    seen = []
    for process, engine in _engines(inspection):
        resident = int(engine.get("resident_bytes") or 0)
        explained = int(engine.get("weight_bytes") or 0) + int(engine.get("kv_bytes") or 0)
        text = (
            f"{_who(process, engine)}: {gib(resident)} resident, "
            f"weights and cache are {gib(explained)}"
        )
        seen.append(text)
        if resident > explained * _MUCH_MORE + _PROCESS_BYTES:
            return warned(
                text,
                "swap the model to itself: the new engine starts with fresh memory; report a bug "
                "with `ironworks replica memory` before and after",
            )
    return passed("; ".join(seen)) if seen else None


def compile_switch(inspection: Inspection) -> Outcome | None:
    """torch.compile is off for models that declare it unsafe (L38).

    The declaration is ``"disable_compile": true`` in the version's generation_config.json,
    as transformers defines it.
    """
    seen = 0
    for process, engine in _engines(inspection):
        seen += 1
        pid, digest = int(engine.get("pid") or 0), str(engine.get("digest") or "")
        how = _compiles(inspection, pid)
        if how and _declares_unsafe(inspection, process, digest):
            return failed(
                f"{_who(process, engine)}: {how}; its generation_config.json says disable_compile",
                "TORCH_COMPILE_DISABLE=1 in the unit, then restart the replica "
                "(torch._dynamo.config.cache_size_limit does not switch it off)",
            )
    return passed(f"{seen} engine(s) compile nothing that must not be") if seen else None


def reachable(inspection: Inspection) -> Outcome | None:
    """Each replica answers at its admin socket."""
    if not inspection.replica_memory:
        return None
    for memory in inspection.replica_memory:
        if memory.error:
            return unknown(f"{memory.process}: {memory.error}", "run as the replica's user")
    return passed(f"{len(inspection.replica_memory)} replica(s) answer")


def _engines(inspection: Inspection) -> Iterator[tuple[ServingProcess, Mapping[str, Any]]]:
    for memory in inspection.replica_memory:
        for engine in memory.report.get("engines", []):
            yield memory.process, engine


def _who(process: ServingProcess, engine: Mapping[str, Any]) -> str:
    return f"{process}, engine {engine.get('pid')} of {engine.get('version')}"


def _compiles(inspection: Inspection, pid: int) -> str:
    """How it shows that an engine runs compiled code, "" if it does not."""
    process = next((p for p in inspection.serving if p.pid == pid), None)
    variables = (process.environment if process else None) or {}
    if variables.get("TORCH_COMPILE_DISABLE", "").lower() in _ON:
        return ""
    folder = variables.get("TORCHINDUCTOR_CACHE_DIR") or _INDUCTOR
    maps = read_if_allowed(inspection.host, f"/proc/{pid}/maps") or ""
    for line in maps.splitlines():
        if folder in line:
            return f"{line.split()[-1]} is mapped"
    return ""


def _declares_unsafe(inspection: Inspection, process: ServingProcess, digest: str) -> bool:
    path = f"{process.state}/registry/views/{digest}/generation_config.json"
    text = inspection.host.read(path) if digest else None
    return bool(text and json.loads(text).get("disable_compile") is True)


GROUP = Group(
    "serving", "running engines", (reachable, device_memory, process_memory, compile_switch)
)
