"""The kernel's log, and the Xid messages in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.host import kmsg, xid
from lifecycle.host.commands import ProcessRunner
from lifecycle.host.host import Host
from lifecycle.host.kmsg import KernelLine
from lifecycle.host.xid import XidAction
from tests.support.fake_nvml import FakeGpuHost


def event(text: str) -> xid.XidEvent:
    (found,) = xid.events([KernelLine(12.5, 7, text)])
    return found


def test_records_of_the_kernel_are_read_with_their_time(tmp_path: Path) -> None:
    machine = FakeGpuHost(tmp_path / "host")
    machine.kernel_says("usb 1-1: new device; it's fine", age_seconds=900)
    machine.kernel_says("NVRM: Xid (PCI:0000:3b:00): 62, pid=1, name=x")
    with (machine.root / "dev/kmsg").open("a") as log:
        log.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    lines = kmsg.read(machine.host())
    assert [(line.seconds, line.text) for line in lines] == [
        (100.0, "usb 1-1: new device; it's fine"),
        (1000.0, "NVRM: Xid (PCI:0000:3b:00): 62, pid=1, name=x"),
    ]


def test_without_the_device_the_journal_is_read(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "journalctl"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\necho '[   12.345678] gpu1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, lost'\n"
    )
    tool.chmod(0o755)
    host = Host(tmp_path, ProcessRunner({"PATH": f"{tool.parent}:/usr/bin:/bin"}))
    (line,) = kmsg.read(host)
    assert line.seconds == 12.345678
    assert xid.events([line])[0].xid == 79


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (13, XidAction.RESTART_APP),
        (31, XidAction.RESTART_APP),
        (63, XidAction.WATCH),
        (48, XidAction.WORKFLOW),
        (147, XidAction.WORKFLOW),
        (119, XidAction.RESET_GPU),
        (158, XidAction.RESET_GPU),
        (79, XidAction.REBOOT),
        (4711, XidAction.UNKNOWN),
    ],
)
def test_each_number_asks_for_its_action(number: int, action: XidAction) -> None:
    found = event(f"NVRM: Xid (PCI:0000:3B:00): {number}, pid=2311, name=python, Ch 00000008")
    assert (found.xid, found.action, found.pci_address) == (number, action, "0000:3b:00.0")
    assert found.seconds == 12.5


@pytest.mark.parametrize(
    ("printed", "action"),
    [
        ("0x1 (GPU Reset Required)", XidAction.RESET_GPU),
        ("0x2 (Node Reboot Required)", XidAction.REBOOT),
        ("0x7 (System Reboot)", XidAction.REBOOT),
        ("0x0 (None)", XidAction.WATCH),
    ],
)
def test_154_asks_for_what_it_prints(printed: str, action: XidAction) -> None:
    text = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to {printed}"
    assert event(text).action is action


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus.",
    ],
)
def test_a_gpu_off_the_bus_is_seen_without_a_number(text: str) -> None:
    found = event(text)
    assert (found.xid, found.pci_address) == (79, "0000:3b:00.0")
    assert found.action is XidAction.REBOOT


def test_other_lines_are_no_xid() -> None:
    lines = ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06", "Xid is mentioned", ""]
    assert xid.events([KernelLine(0, n, text) for n, text in enumerate(lines)]) == []
