"""Groups ``numa`` and ``clock``: where memory and processors lie, and what time it is."""

from __future__ import annotations

import re

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection
from lifecycle.host.serving_processes import read_if_allowed

_SLOW_SOURCES = {"hpet", "acpi_pm", "jiffies"}
_CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"


def affinity(inspection: Inspection) -> Outcome | None:
    """Each engine may run on the processors next to its GPU."""
    host = inspection.host
    nodes = host.glob("/sys/devices/system/node/node[0-9]*")
    if len(nodes) < 2 or not inspection.nvml.gpus:
        return None
    for gpu in inspection.nvml.gpus:
        near = _cpus(host.read(f"/sys/bus/pci/devices/{gpu.pci_address}/local_cpulist") or "")
        for process in gpu.processes or ():
            status = read_if_allowed(host, f"/proc/{process.pid}/status") or ""
            found = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
            allowed = _cpus(found[1] if found else "")
            if near and allowed and not near & allowed:
                return warned(
                    f"pid {process.pid} uses GPU {gpu.index} and may not run on a processor of "
                    "its NUMA node",
                    "CPUAffinity= and NUMAPolicy=local in its unit",
                )
    return passed(f"{len(nodes)} nodes; every process on a GPU may run next to it")


def synchronised(inspection: Inspection) -> Outcome:
    """The clock follows a time server: audit events and certificates depend on it."""
    ran = inspection.host.run(["timedatectl", "show", "-p", "NTPSynchronized", "--value"])
    answer = ran.stdout.strip()
    if answer == "yes":
        return passed("timedatectl: NTPSynchronized=yes")
    if answer == "no":
        return warned(
            "timedatectl: NTPSynchronized=no",
            "sudo timedatectl set-ntp true, or install chrony; allow UDP 123 out",
        )
    tracking = inspection.host.run(["chronyc", "-c", "tracking"])
    # The last of its fields is the leap status (chronyc(1)).
    if tracking.ok:
        leap = tracking.stdout.strip().rpartition(",")[2]
        good = leap == "Normal"
        return passed(f"chrony: {leap}") if good else warned(f"chrony: {leap}", "chronyc sources")
    return unknown("neither timedatectl nor chronyc tells whether the clock is synchronised")


def clock_source(inspection: Inspection) -> Outcome | None:
    """Reading the time is no system call."""
    source = (inspection.host.read(_CLOCK_SOURCE) or "").strip()
    if not source:
        return None
    if source in _SLOW_SOURCES:
        return warned(
            f"the clock source is {source}: each look at the time takes microseconds",
            "find out why the kernel gave up the TSC (journalctl -k -g clocksource)",
        )
    return passed(f"the clock source is {source}")


def boot_time(inspection: Inspection) -> Outcome | None:
    """The wall clock is not before the kernel's own build or boot."""
    found = re.search(r"^btime (\d+)", inspection.host.read("/proc/stat") or "", re.MULTILINE)
    if found is None:
        return None
    if inspection.host.clock.time() < int(found[1]):
        return failed("the wall clock is before the time of boot", "set the clock: group clock")
    return passed("the wall clock is after the time of boot")


def _cpus(text: str) -> set[int]:
    """``0-3,8`` as numbers (cpuset(7), list format)."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


NUMA = Group("numa", "NUMA", (affinity,))
CLOCK = Group("clock", "clock", (synchronised, clock_source, boot_time))
