"""Xid messages of the NVIDIA driver in the kernel's log, and what each asks for.

The numbers follow NVIDIA's Xid catalogue and its "immediate actions" column. ECC counters of
zero don't mean health: many Xids leave them alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lifecycle.host.kmsg import KernelLine

FELL_OFF_THE_BUS = 79


class XidAction(StrEnum):
    """What an Xid asks for."""

    RESTART_APP = "restart the application"
    WATCH = "watch"
    RESET_GPU = "reset the GPU"
    WORKFLOW = "follow the vendor's workflow"
    REBOOT = "reboot the machine"
    UNKNOWN = "unknown"


_ACTIONS: dict[int, XidAction] = {
    **dict.fromkeys((13, 31, 32, 69, 94), XidAction.RESTART_APP),
    **dict.fromkeys((43, 63, 92, 121, 137), XidAction.WATCH),
    **dict.fromkeys(
        (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), XidAction.RESET_GPU
    ),
    **dict.fromkeys((45, 48, 74, *range(144, 151)), XidAction.WORKFLOW),
    FELL_OFF_THE_BUS: XidAction.REBOOT,
}

# What Xid 154 prints: NVML's recovery action, see `lifecycle.host.nvml`.
_PRINTED = {
    0: XidAction.WATCH,
    1: XidAction.RESET_GPU,
    2: XidAction.REBOOT,
    3: XidAction.WORKFLOW,
    4: XidAction.RESET_GPU,
    5: XidAction.WORKFLOW,
    6: XidAction.RESET_GPU,
    7: XidAction.REBOOT,
}

_XID = re.compile(r"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F:]+)\).*?: (\d+),")
_TO_ACTION = re.compile(r"\bto (0x[0-9a-fA-F]+)")
# Lines without a number; the driver logs one of these for the same event.
_OFF_THE_BUS = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]+):? .*fallen off the bus")


@dataclass(frozen=True)
class XidEvent:
    """One Xid message.

    Attributes:
        xid: its number; `FELL_OFF_THE_BUS` also for the messages without one.
        pci_address: of the GPU, as sysfs writes it, such as ``0000:3b:00.0``.
        seconds: since boot.
        sequence: number of the line in the kernel's log.
        action: what it asks for.
        text: the message.
    """

    xid: int
    pci_address: str
    seconds: float
    sequence: int
    action: XidAction
    text: str


def events(lines: Iterable[KernelLine]) -> list[XidEvent]:
    """The Xid messages among lines of the kernel's log, in their order."""
    found = []
    for line in lines:
        if match := _XID.search(line.text):
            xid = int(match[2])
            action = _printed(line.text) if xid == 154 else action_of(xid)
            found.append(_event(xid, match[1], line, action))
        elif match := _OFF_THE_BUS.search(line.text):
            found.append(_event(FELL_OFF_THE_BUS, match[1], line, XidAction.REBOOT))
    return found


def action_of(xid: int) -> XidAction:
    """What an Xid asks for; 154 prints its own action, see `events`."""
    return _ACTIONS.get(xid, XidAction.UNKNOWN)


def _event(xid: int, address: str, line: KernelLine, action: XidAction) -> XidEvent:
    return XidEvent(xid, _address(address), line.seconds, line.sequence, action, line.text[:300])


def _printed(text: str) -> XidAction:
    match = _TO_ACTION.search(text)
    return _PRINTED.get(int(match[1], 16), XidAction.UNKNOWN) if match else XidAction.UNKNOWN


def _address(text: str) -> str:
    """``PCI:0000:3b:00`` and ``0000:3b:00.0`` as sysfs writes them."""
    address = text.removeprefix("PCI:").rstrip(":").lower()
    return address if "." in address else f"{address}.0"
