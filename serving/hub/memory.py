"""Where a replica's memory is: the API process, its engines, the host and the GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import psutil

from serving.hub.device import device_memory
from serving.hub.loaded import LoadedEngine


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes; 0 when it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def memory_report(engines: Iterable[LoadedEngine]) -> dict[str, Any]:
    """Bytes by owner, as JSON values; retiring engines are listed too."""
    host = psutil.virtual_memory()
    return {
        "api": {"pid": os.getpid(), "resident_bytes": resident_bytes(os.getpid())},
        "engines": [
            {
                "version": engine.source.name,
                "digest": engine.digest,
                "pid": engine.pid,
                "resident_bytes": resident_bytes(engine.pid),
                "device_bytes": engine.stats.device_memory_bytes if engine.stats else 0,
                "device_allocated_bytes": _allocated(engine),
                "weight_bytes": engine.facts.ready.weight_bytes,
                "kv_bytes": engine.facts.ready.kv_bytes,
                "leases": engine.leases,
            }
            for engine in engines
        ],
        "host": {"total_bytes": host.total, "available_bytes": host.available},
        "devices": [asdict(device) for device in device_memory()],
    }


def _allocated(engine: LoadedEngine) -> int | None:
    """Bytes of live tensors; far less than ``device_bytes`` means a leak or fragments."""
    return engine.stats.device_allocated_bytes if engine.stats else None
