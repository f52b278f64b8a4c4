"""Group ``kernel``: settings that a server of models wants otherwise than a desktop.

Meanings and defaults: ``Documentation/admin-guide/sysctl`` and ``mm/transhuge.rst`` of Linux.
"""

from __future__ import annotations

import re

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection

_DROP_IN = "/etc/sysctl.d/90-ironworks.conf"
_THP = "/sys/kernel/mm/transparent_hugepage"
_DEFAULT_MAP_COUNT = 65_530
_SWAPPINESS = 60
"""The kernel's default; above it, weights in page cache and heap are swapped early."""


def swappiness(inspection: Inspection) -> Outcome:
    """Pages of idle engines are not swapped out early."""
    value = _number(inspection, "vm/swappiness")
    swaps = (inspection.host.read("/proc/swaps") or "").strip().splitlines()[1:]
    if value is None:
        return unknown("/proc/sys/vm/swappiness is not readable")
    if swaps and value > _SWAPPINESS:
        return warned(f"vm.swappiness is {value}, and there is swap", _set("vm.swappiness", 10))
    return passed(f"vm.swappiness is {value}{'' if swaps else ', no swap'}")


def overcommit(inspection: Inspection) -> Outcome:
    """Large maps are not refused: CUDA reserves far more addresses than it uses."""
    value = _number(inspection, "vm/overcommit_memory")
    if value == 2:
        return warned(
            "vm.overcommit_memory is 2: CUDA's address space and fork() are refused early",
            _set("vm.overcommit_memory", 0),
        )
    return passed(f"vm.overcommit_memory is {value}")


def max_map_count(inspection: Inspection) -> Outcome:
    """Enough maps for allocator segments and mapped weights."""
    value = _number(inspection, "vm/max_map_count")
    if value is None:
        return unknown("/proc/sys/vm/max_map_count is not readable")
    if value < _DEFAULT_MAP_COUNT:
        return warned(
            f"vm.max_map_count is {value}, below the default of {_DEFAULT_MAP_COUNT}",
            _set("vm.max_map_count", 262_144),
        )
    return passed(f"vm.max_map_count is {value}")


def transparent_hugepages(inspection: Inspection) -> Outcome | None:
    """Huge pages don't make allocations wait for compaction."""
    enabled = _chosen(inspection, f"{_THP}/enabled")
    defrag = _chosen(inspection, f"{_THP}/defrag")
    if enabled is None:
        return None
    if enabled == "always" and defrag == "always":
        return warned(
            "transparent huge pages: enabled=always, defrag=always: an allocation may stall",
            f"echo madvise | sudo tee {_THP}/defrag; to keep it: transparent_hugepage=madvise "
            "on the kernel's command line",
        )
    return passed(f"transparent huge pages: enabled={enabled}, defrag={defrag}")


def cpu_governor(inspection: Inspection) -> Outcome | None:
    """The processors don't save power while requests wait."""
    paths = inspection.host.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = {(inspection.host.read(path) or "").strip() for path in paths}
    if not governors:
        return None
    driver_path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"
    driver = (inspection.host.read(driver_path) or "").strip()
    # In its active mode intel_pstate's "powersave" still scales with the load.
    slow = governors & ({"powersave"} if not driver.startswith("intel_pstate") else set())
    if slow:
        return warned(
            f"the governor is {', '.join(sorted(governors))}",
            "sudo cpupower frequency-set -g performance",
        )
    return passed(f"the governor is {', '.join(sorted(governors))}")


def numa_balancing(inspection: Inspection) -> Outcome | None:
    """Pages are not moved between nodes under pinned work."""
    nodes = inspection.host.glob("/sys/devices/system/node/node[0-9]*")
    value = _number(inspection, "kernel/numa_balancing")
    if value is None or len(nodes) < 2:
        return None
    if value:
        return warned(
            f"kernel.numa_balancing is {value} on {len(nodes)} nodes: page faults in hot loops",
            _set("kernel.numa_balancing", 0),
        )
    return passed("kernel.numa_balancing is 0")


def pid_max(inspection: Inspection) -> Outcome:
    """Pids and threads don't run out."""
    value = _number(inspection, "kernel/pid_max")
    processors = len(inspection.host.glob("/sys/devices/system/cpu/cpu[0-9]*"))
    # The kernel's own scale (kernel/pid.c): 1,024 for each processor, at least 32,768.
    wanted = max(32_768, 1024 * processors)
    if value is not None and value < wanted:
        return warned(f"kernel.pid_max is {value}", _set("kernel.pid_max", 4_194_304))
    return passed(f"kernel.pid_max is {value}")


def file_max(inspection: Inspection) -> Outcome:
    """The machine is far from its limit of open files."""
    text = (inspection.host.read("/proc/sys/fs/file-nr") or "").split()
    if len(text) != 3:
        return unknown("/proc/sys/fs/file-nr is not readable")
    used, limit = int(text[0]), int(text[2])
    if used > 0.8 * limit:
        return failed(f"{used} of {limit} files are open", _set("fs.file-max", 2 * limit))
    return passed(f"{used} files are open, limit {limit}")


def _number(inspection: Inspection, name: str) -> int | None:
    text = inspection.host.read(f"/proc/sys/{name}")
    return int(text) if text and text.strip().lstrip("-").isdecimal() else None


def _chosen(inspection: Inspection, path: str) -> str | None:
    """The choice in brackets: ``always [madvise] never``."""
    found = re.search(r"\[(\S+)\]", inspection.host.read(path) or "")
    return found[1] if found else None


def _set(name: str, value: int) -> str:
    return f"sudo sysctl -w {name}={value}; to keep it: a line in {_DROP_IN}"


GROUP = Group(
    "kernel",
    "kernel settings",
    (
        swappiness,
        overcommit,
        max_map_count,
        transparent_hugepages,
        cpu_governor,
        numa_balancing,
        pid_max,
        file_max,
    ),
)
