"""Runs every check of every group over one inspection."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lifecycle.host.checks import (
    cuda,
    cudnn,
    disk,
    driver,
    gpu,
    journal,
    kernel,
    machine,
    network,
    python,
    serving,
    systemd,
    torch,
)
from lifecycle.host.checks.outcome import Check, Group, Outcome, unknown
from lifecycle.host.host import Host
from lifecycle.host.inspection import Inspection
from lifecycle.host.report import Finding, GroupReport, HostReport, counters_of
from registry.clock import now_us
from registry.errors import IronworksError
from registry.paths import StatePaths

GROUPS: tuple[Group, ...] = (
    driver.GROUP,
    gpu.GROUP,
    cuda.GROUP,
    cudnn.GROUP,
    torch.GROUP,
    python.GROUP,
    kernel.GROUP,
    network.GROUP,
    disk.SHARED_MEMORY,
    disk.DISK,
    journal.GROUP,
    systemd.GROUP,
    machine.NUMA,
    machine.CLOCK,
    serving.GROUP,
)

NO_GPU = "no GPU"

Progress = Callable[[str], None]
"""Told the name of each group before its checks run."""


def verify(
    inspection: Inspection,
    groups: Sequence[Group] = GROUPS,
    progress: Progress | None = None,
) -> HostReport:
    """Run the checks; never raises for what a check meets."""
    started = time.monotonic()
    reports = []
    for group in groups:
        if progress is not None:
            progress(group.name)
        reports.append(_run(group, inspection))
    return HostReport(
        host=(inspection.host.read("/proc/sys/kernel/hostname") or "unknown").strip(),
        verified_us=now_us(),
        seconds=round(time.monotonic() - started, 3),
        groups=tuple(reports),
        has_gpu=inspection.has_gpu,
        boot_id=boot_id(inspection.host),
        counters={network.OVERFLOWS: inspection.tcp_counters.get(network.OVERFLOWS, 0)},
    )


def verify_and_keep(host: Host, paths: StatePaths, progress: Progress | None = None) -> HostReport:
    """Verify, compare counters with the report before, and keep the report where it can be.

    Raises:
        InputError: the machine's declaration is not acceptable.
    """
    file = report_file(paths)
    before = file.read_text() if file.is_file() else None
    inspection = Inspection(host, counters=counters_of(before, boot_id(host)))
    report = verify(inspection, progress=progress)
    # A full or read-only disk is a finding, and no reason to say nothing.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(report.as_json(), indent=1) + "\n")
        new.replace(file)
    return report


def report_file(paths: StatePaths) -> Path:
    """Where a state folder keeps the last verification of its machine."""
    return paths.root / "host" / "report.json"


def boot_id(host: Host) -> str:
    """The kernel's name of this boot."""
    return (host.read("/proc/sys/kernel/random/boot_id") or "").strip()


def _run(group: Group, inspection: Inspection) -> GroupReport:
    if group.needs_gpu and not inspection.has_gpu:
        return GroupReport(group.name, group.about, note=NO_GPU)
    findings = []
    for check in group.checks:
        outcome = _outcome(check, inspection)
        if outcome is not None:
            findings.append(Finding(group.name, check.__name__, outcome))
    note = "" if findings else "nothing to check here"
    return GroupReport(group.name, group.about, tuple(findings), note)


def _outcome(check: Check, inspection: Inspection) -> Outcome | None:
    try:
        return check(inspection)
    except IronworksError as error:
        # Such as a file that only root may read.
        return unknown(str(error), error.fix)
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        # A file in a form that no one foresaw must not hide the other checks.
        return unknown(f"the check met what it can't read: {type(error).__name__}: {error}"[:300])
