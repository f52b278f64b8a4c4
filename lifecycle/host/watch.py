"""What is known of a host's GPUs at one moment: the bus, NVML and the kernel's log together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from lifecycle.host import kmsg, pci, xid
from lifecycle.host.host import Host, HostAccessError
from lifecycle.host.nvml import PROBE_SECONDS, NvmlReading, probe
from lifecycle.host.nvml_errors import Standing
from lifecycle.host.pci import PciGpu
from lifecycle.host.xid import XidEvent


class GpuState(StrEnum):
    """How a host's GPUs stand, in one word."""

    NONE = "no_gpu"
    """There is none on the bus and no driver sees one."""
    OK = "ok"
    FAULT = "fault"
    """One is broken, or the driver does not see all that are on the bus."""
    NO_DRIVER = "no_driver"
    """There is one on the bus and no driver is installed: a person must install it."""


@dataclass(frozen=True)
class HostView:
    """GPUs of a host at one moment.

    Attributes:
        at: seconds since 1970.
        uptime: seconds since boot.
        on_bus: what PCI shows.
        nvml: what the driver says.
        xids: Xid messages since boot that the kernel still holds.
        kernel_log: "" or why it can't be read; then ``xids`` is empty and means nothing.
    """

    at: float
    uptime: float
    on_bus: tuple[PciGpu, ...]
    nvml: NvmlReading
    xids: tuple[XidEvent, ...] = field(default=())
    kernel_log: str = ""

    @property
    def state(self) -> GpuState:
        """How the GPUs stand."""
        if not self.on_bus and not self.nvml.gpus:
            # A fault of the library with no GPU on the bus is a leftover driver, no broken GPU.
            return GpuState.NONE
        if self.nvml.error is not None and self.nvml.error.standing is Standing.ABSENT:
            return GpuState.NO_DRIVER
        return GpuState.FAULT if self.fault else GpuState.OK

    @property
    def fault(self) -> str:
        """What is broken, in words; "" when nothing is known to be."""
        if self.nvml.fault is not None:
            code = self.nvml.fault
            return f"NVML: {code.meaning} ({code.name}, {code.code})"
        if self.nvml.error is None and len(self.nvml.gpus) < len(self.on_bus):
            return f"the driver sees {len(self.nvml.gpus)} of {len(self.on_bus)} GPUs on the bus"
        return ""


COLD_SECONDS_PER_GPU = 2.0
"""A driver that nobody uses, without persistence mode, initialises each GPU at every look."""


def look(host: Host, *, deadline_seconds: float | None = None) -> HostView:
    """Look at a host's GPUs; never longer than the deadline and a little.

    Args:
        host: the machine.
        deadline_seconds: of the look through NVML; None: what a cold driver may need.

    Raises:
        AbandonedChildrenError: too many earlier looks hang in the kernel.
    """
    on_bus = tuple(pci.gpus(host))
    if deadline_seconds is None:
        deadline_seconds = max(PROBE_SECONDS, COLD_SECONDS_PER_GPU * len(on_bus))
    reading = probe(host, deadline_seconds=deadline_seconds)
    trouble = ""
    messages: list[XidEvent] = []
    if on_bus or reading.gpus:
        try:
            messages = xid.events(kmsg.read(host))
        except HostAccessError as error:
            trouble = str(error)
    return HostView(
        host.clock.time(), uptime(host), on_bus, reading, tuple(messages), kernel_log=trouble
    )


def uptime(host: Host) -> float:
    """Seconds since boot, on the clock of the kernel's log."""
    text = host.read("/proc/uptime") or ""
    return float(text.split()[0]) if text else 0.0
