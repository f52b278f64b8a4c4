"""NVIDIA GPUs as the PCI bus shows them, whether or not a driver does."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle.host.host import Host

_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
# PCI class codes 0x0300xx (VGA controller) and 0x0302xx (3D controller), PCI-SIG.
_GPU_CLASSES = ("0x0300", "0x0302")


@dataclass(frozen=True)
class PciGpu:
    """One GPU on the bus.

    Attributes:
        address: such as ``0000:3b:00.0``.
        driver: name of the kernel driver bound to it (``nvidia``, ``nouveau``, …), or None.
    """

    address: str
    driver: str | None


def gpus(host: Host) -> list[PciGpu]:
    """Every NVIDIA GPU on the bus, in the order of addresses.

    Where sysfs is hidden, as in some sandboxes, what the loaded driver has claimed.
    """
    found = []
    for device in host.glob(f"{_DEVICES}/*"):
        vendor = (host.read(f"{device}/vendor") or "").strip()
        kind = (host.read(f"{device}/class") or "").strip()
        if vendor == _NVIDIA and kind.startswith(_GPU_CLASSES):
            driver = host.readlink(f"{device}/driver")
            found.append(PciGpu(device.rpartition("/")[2], driver and driver.rpartition("/")[2]))
    if found:
        return found
    claimed = host.glob("/proc/driver/nvidia/gpus/*")
    return [PciGpu(path.rpartition("/")[2], "nvidia") for path in claimed]
