"""Group ``driver``: the NVIDIA driver, its two halves, and what keeps it from loading."""

from __future__ import annotations

import re

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection, version_tuple
from lifecycle.host.nvml_errors import Standing

_USER_LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULE_SIGNATURE = b"~Module signature appended~\n"
"""The last bytes of a signed module (``scripts/sign-file.c`` of the kernel)."""
_MODULE_FOLDERS = (
    *("updates/dkms", "updates", "kernel/drivers/video"),  # DKMS; the vendor's own installer
    *("extra", "extra/*", "weak-updates/*", "kernel/nvidia*"),  # packages of RHEL and Ubuntu
)


def version(inspection: Inspection) -> Outcome:
    """A driver is loaded."""
    loaded = inspection.driver_version
    if loaded:
        return passed(f"driver {loaded} (/sys/module/nvidia/version)")
    answer = inspection.nvml.error
    why = f"; NVML: {answer.meaning}" if answer else ""
    return failed(
        f"no nvidia module is loaded for {_cards(inspection)}{why}",
        "install the driver, then `sudo modprobe nvidia`",
    )


def user_space(inspection: Inspection) -> Outcome | None:
    """User space and kernel module are of one version (NVML error 18)."""
    loaded = inspection.driver_version
    if not loaded:
        return None
    differing = [
        f"{path} is of {found}" for path, found in _user_space(inspection) if found != loaded
    ]
    error = inspection.nvml.error
    mismatch = error is not None and error.standing is Standing.MISMATCH
    if differing or mismatch:
        seen = "; ".join(differing) or "NVML: driver/library version mismatch (18)"
        return failed(
            f"the loaded module is {loaded}, but {seen}",
            "reload the modules (`ironworks` job recover_host) or reboot, then hold the "
            "driver's packages: sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
        )
    if not _user_space(inspection):
        return unknown("no libcuda.so.1 or libnvidia-ml.so.1 in the system's library folders")
    return passed(f"module, libcuda and libnvidia-ml are all {loaded}")


def nouveau(inspection: Inspection) -> Outcome:
    """The open driver has not taken the card (L8)."""
    if "nouveau" in inspection.modules:
        return failed(
            "the module nouveau is loaded (/proc/modules): the NVIDIA driver can't bind the card",
            "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
            "/etc/modprobe.d/blacklist-nouveau.conf; sudo update-initramfs -u; reboot",
        )
    return passed("nouveau is not loaded (/proc/modules)")


def dkms(inspection: Inspection) -> Outcome:
    """There is a module for the running kernel, and for the newest one installed."""
    host, kernel = inspection.host, inspection.kernel
    # Of a removed kernel, only files that depmod made stay behind.
    kernels = [path.split("/")[3] for path in host.glob("/lib/modules/*/kernel")]
    if kernel not in kernels:
        return unknown(f"/lib/modules has nothing of the running kernel {kernel}")
    without = [name for name in kernels if not _module_files(inspection, name)]
    if kernel in without and not inspection.driver_version:
        return failed(
            f"there is no nvidia module for the running kernel {kernel}",
            f"sudo apt-get install linux-headers-{kernel}; sudo dkms autoinstall -k {kernel}",
        )
    newest = max(kernels, key=version_tuple)
    if newest in without and newest != kernel:
        return warned(
            f"kernel {newest} is installed without an nvidia module: the next boot has no driver",
            f"sudo apt-get install linux-headers-{newest}; sudo dkms autoinstall -k {newest}",
        )
    return passed(f"there is an nvidia module for kernel {kernel}")


def secure_boot(inspection: Inspection) -> Outcome:
    """Secure Boot does not refuse an unsigned module."""
    # efivarfs: four bytes of attributes, then the value (efivarfs.rst of the kernel).
    variable = inspection.host.read_bytes(_SECURE_BOOT)
    if not variable or variable[-1] != 1:
        return passed("Secure Boot is off, or this is no EFI machine")
    if inspection.driver_version:
        return passed("Secure Boot is on, and the nvidia module was accepted")
    files = _module_files(inspection, inspection.kernel)
    raw = inspection.host.read_bytes(files[0]) if files and files[0].endswith(".ko") else None
    if raw is not None and not raw.endswith(_MODULE_SIGNATURE):
        return failed(
            f"Secure Boot is on and {files[0]} is not signed: the kernel refuses it",
            "enrol a machine owner key (sudo mokutil --import …) and sign the module with it, "
            "or turn Secure Boot off",
        )
    return unknown("Secure Boot is on; whether the module's key is enrolled is not known")


def device_count(inspection: Inspection) -> Outcome:
    """As many GPUs on the bus as in NVML, and as were declared."""
    on_bus, expected = len(inspection.gpus_on_bus), inspection.expected.gpu.count
    if not on_bus and inspection.nvml.gpus:
        return unknown("the PCI bus shows no GPU, NVML does: a container or a virtual machine")
    if expected is not None and on_bus != expected:
        return failed(
            f"{on_bus} GPUs are on the PCI bus, {expected} were declared",
            "look for 'fallen off the bus' in the kernel log; power off and reseat the card",
        )
    reading = inspection.nvml
    if reading.error is not None:
        return unknown(f"NVML does not answer: {reading.error.meaning}")
    if len(reading.gpus) != on_bus:
        return failed(
            f"{on_bus} GPUs are on the PCI bus, NVML knows {len(reading.gpus)}",
            "recover the host (job recover_host), or reboot",
        )
    return passed(f"{on_bus} on the bus, {len(reading.gpus)} in NVML")


def device_nodes(inspection: Inspection) -> Outcome | None:
    """The device files exist."""
    if not inspection.driver_version:
        return None
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    gpus = max(len(inspection.gpus_on_bus), len(inspection.nvml.gpus))
    wanted += [f"/dev/nvidia{index}" for index in range(gpus)]
    missing = [path for path in wanted if not inspection.host.exists(path)]
    if missing:
        return failed(
            f"missing: {', '.join(missing)}",
            "sudo nvidia-modprobe -c 0 -u; enable nvidia-persistenced",
        )
    return passed(f"{', '.join(wanted)} exist")


def packages_held(inspection: Inspection) -> Outcome | None:
    """No unattended upgrade can change the user space under the loaded module."""
    host = inspection.host
    status = host.read("/var/lib/dpkg/status")
    if status is None:
        return None
    # One paragraph per package (dpkg's status file): a selection, a flag, a state.
    states = re.findall(
        r"^Package: ((?:lib)?nvidia-(?:driver|compute|kernel|dkms|gl)\S*)\n"
        r"(?:.+\n)*?Status: (\w+) \w+ installed$",
        status,
        re.MULTILINE,
    )
    if not states:
        return passed("no driver package of dpkg: apt can't upgrade the driver")
    loose = sorted(name for name, selection in states if selection != "hold")
    if not loose:
        return passed(f"{len(states)} driver packages are held")
    more = f" and {len(loose) - 3} more" if len(loose) > 3 else ""
    return warned(
        f"not held: {', '.join(loose[:3])}{more}: an upgrade breaks NVML until the next reboot",
        f"sudo apt-mark hold {' '.join(loose)}",
    )


def _cards(inspection: Inspection) -> str:
    return f"{len(inspection.gpus_on_bus)} GPU(s) on the PCI bus"


def _user_space(inspection: Inspection) -> list[tuple[str, str]]:
    """(library, driver version in the name of the file behind it)."""
    found = []
    for folder in _LIBRARY_FOLDERS:
        for name in _USER_LIBRARIES:
            target = inspection.host.resolve(f"{folder}/{name}") or ""
            match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", target)
            if match:
                found.append((f"{folder}/{name}", match[1]))
    return found


def _module_files(inspection: Inspection, kernel: str) -> list[str]:
    files: list[str] = []
    for place in _MODULE_FOLDERS:
        files += inspection.host.glob(f"/lib/modules/{kernel}/{place}/nvidia*.ko*")
    return files


GROUP = Group(
    "driver",
    "NVIDIA driver",
    (
        version,
        user_space,
        nouveau,
        dkms,
        secure_boot,
        device_count,
        device_nodes,
        packages_held,
    ),
    needs_gpu=True,
)
