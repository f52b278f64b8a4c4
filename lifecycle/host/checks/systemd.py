"""Group ``systemd``: units that do what they say, and the limits of what runs."""

from __future__ import annotations

import re

from lifecycle.host.checks import unit_files
from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection, real_path
from lifecycle.host.serving_processes import ServingProcess, read_if_allowed
from registry.paths import STATE_VARIABLE

_REPLACED = {"MemoryLimit": "MemoryMax", "CPUShares": "CPUWeight", "BlockIOWeight": "IOWeight"}
"""Settings of cgroup v1 that current systemd ignores (L17; systemd.resource-control(5))."""


def units_verify(inspection: Inspection) -> Outcome | None:
    """Systemd understands every key of our units."""
    paths = unit_files.unit_paths(inspection.host, inspection.expected.serving.units)
    if not paths:
        return None
    # The files themselves, so that a tree that stands for a machine is judged, not this one.
    real = [str(real_path(inspection.host, path)) for path in paths]
    ran = inspection.host.run(["systemd-analyze", "verify", *real], deadline_seconds=20)
    if not ran.found:
        return unknown(ran.why)
    # It ends with 0 also where it knows a key not: what it writes is the verdict.
    complaints = [line for line in ran.stderr.splitlines() if "ironworks" in line]
    if complaints or not ran.ok:
        return failed((complaints or [ran.why])[0][:300], "correct the unit, then daemon-reload")
    return passed(f"{len(paths)} units are understood")


def replaced_settings(inspection: Inspection) -> Outcome | None:
    """No unit relies on a limit that is ignored."""
    paths = unit_files.unit_paths(inspection.host, inspection.expected.serving.units)
    for path in paths:
        settings = unit_files.unit_settings(inspection.host, path)
        for old, new in _REPLACED.items():
            if old in settings:
                return warned(f"{path} has {old}=, which is ignored", f"write {new}= instead")
    return passed("no setting of cgroup v1") if paths else None


def cgroup_v2(inspection: Inspection) -> Outcome | None:
    """The unified hierarchy: memory limits that hold, and pressure that can be read."""
    if not inspection.has_systemd:
        return None
    if not inspection.host.exists("/sys/fs/cgroup/cgroup.controllers"):
        return warned(
            "/sys/fs/cgroup is not the unified hierarchy (cgroup v2)",
            "systemd.unified_cgroup_hierarchy=1 on the kernel's command line, then reboot",
        )
    return passed("cgroup v2")


def environment(inspection: Inspection) -> Outcome | None:
    """Units and running replicas have the variables they need (L16).

    systemd passes none of a shell's variables on; only names are shown, never values.
    """
    host, wanted = inspection.host, inspection.expected.serving.environment
    fix = "Environment=NAME=value or EnvironmentFile= in the unit, daemon-reload, restart"
    paths = unit_files.unit_paths(host, ("ironworks-serving*.service",))
    for path in paths:
        names, complete = unit_files.variables(host, unit_files.unit_settings(host, path))
        lost = sorted(set(wanted) - names)
        if lost and complete:
            return failed(f"{path} does not set {', '.join(lost)}", fix)
    replicas = [p for p in inspection.serving if p.kind == "replica" and p.environment is not None]
    for process in replicas:
        lost = [name for name in wanted if not _has(process, name)]
        if lost:
            return failed(
                f"{process} runs without {', '.join(lost)} (/proc/{process.pid}/environ)", fix
            )
    if not paths and not replicas:
        return None
    return passed(f"{', '.join(wanted)} in {len(paths)} unit(s) and {len(replicas)} replica(s)")


def open_files(inspection: Inspection) -> Outcome | None:
    """Each replica may open a file for every connection."""
    wanted = inspection.expected.serving.open_files
    limits = _limits(inspection, "Max open files")
    for process, limit in limits:
        if limit is not None and limit < wanted:
            return warned(
                f"{process} may open {limit} files (/proc/{process.pid}/limits)",
                f"LimitNOFILE={wanted} in its unit; without systemd: ulimit -n before the start",
            )
    return passed(f"{len(limits)} replica(s) may open {wanted} files or more") if limits else None


def locked_memory(inspection: Inspection) -> Outcome | None:
    """Memory can be pinned for the network cards that need it (RDMA registers buffers)."""
    if not inspection.host.glob("/sys/class/infiniband/*"):
        return None
    for process, limit in _limits(inspection, "Max locked memory"):
        if limit is not None:
            return warned(
                f"{process} may lock {limit} bytes, and there is RDMA here",
                "LimitMEMLOCK=infinity in its unit",
            )
    return passed("no limit on locked memory")


def _limits(inspection: Inspection, label: str) -> list[tuple[ServingProcess, int | None]]:
    """The soft limit of each replica; None is unlimited."""
    found = []
    for process in inspection.serving:
        text = read_if_allowed(inspection.host, f"/proc/{process.pid}/limits") or ""
        match = re.search(rf"^{label}\s+(\S+)", text, re.MULTILINE)
        if process.kind == "replica" and match:
            found.append((process, None if match[1] == "unlimited" else int(match[1])))
    return found


def _has(process: ServingProcess, name: str) -> bool:
    given = name in (process.environment or {})
    return given or (name == STATE_VARIABLE and bool(process.option("state")))


GROUP = Group(
    "systemd",
    "services",
    (units_verify, replaced_settings, cgroup_v2, environment, open_files, locked_memory),
)
