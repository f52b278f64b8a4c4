"""Rungs 5 to 7: reset the GPU, else reload the driver, else (opt-in) the PCI function.

Each is proven by a look through NVML; each may be called again after it was cut off.
"""

from __future__ import annotations

from dataclasses import replace

from lifecycle.host.commands import Ran
from lifecycle.host.host import HostAccessError
from lifecycle.host.recovery.climb import Climb, Site, Verdict
from lifecycle.host.watch import GpuState, look

RESET_SECONDS = 15.0
RELOAD_SECONDS = 12.0
PCI_SECONDS = 15.0

# Users before what they use (`lsmod`); those that are not loaded are passed over.
_UNLOAD = (
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_fs",
    "gdrdrv",
    "nvidia",
)
_LOAD = ("nvidia", "nvidia-uvm", "nvidia-modeset")
_PROOF_SECONDS = 3.0
_RETRY_SECONDS = 0.5


def reset(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 5: ``nvidia-smi -i N -r`` for each broken GPU; never for all at once."""
    deadline = site.host.clock.monotonic() + RESET_SECONDS - _PROOF_SECONDS
    for gpu in climb.gpus:
        # Persistence mode keeps the device open, which refuses the reset.
        site.host.run(["nvidia-smi", "-i", str(gpu), "-pm", "0"], deadline_seconds=2.0)
        ran = _until(site, ["nvidia-smi", "-i", str(gpu), "-r"], deadline)
        if not ran.ok:
            return climb, f"GPU {gpu} was not reset: {ran.why}"
    return _proven(site, climb, f"reset: GPU {', '.join(map(str, climb.gpus))}")


def reload(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 6: unload the driver's modules, users first, and load them again."""
    deadline = site.host.clock.monotonic() + RELOAD_SECONDS - _PROOF_SECONDS
    loaded = [name for name in _UNLOAD if site.host.exists(f"/sys/module/{name}")]
    refused = _unload(site, loaded, deadline)
    # Loaded again even if one could not be unloaded: half a driver helps nobody.
    extra = [name for name in reversed(loaded) if name.replace("_", "-") not in _LOAD]
    for module in (*_LOAD, *(name.replace("_", "-") for name in extra)):
        ran = site.host.run(
            ["modprobe", module],
            deadline_seconds=max(1.0, deadline - site.host.clock.monotonic()),
        )
        if not ran.ok and module == _LOAD[0]:
            return climb, refused or f"the driver was not loaded: {ran.why}"
    if refused:
        return climb, refused
    return _proven(site, climb, f"reloaded: {', '.join(loaded) or 'no module was loaded'}")


def pci_reset(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 7: reset the PCI function, else remove it and scan the bus; the vendor tests neither.

    The driver must let go of the device first, so its modules are unloaded around it.
    """
    deadline = site.host.clock.monotonic() + PCI_SECONDS - _PROOF_SECONDS
    loaded = [name for name in _UNLOAD if site.host.exists(f"/sys/module/{name}")]
    refused = _unload(site, loaded, deadline)
    if refused:
        return climb, refused
    try:
        for address in climb.addresses:
            device = f"/sys/bus/pci/devices/{address}"
            if site.host.exists(f"{device}/reset"):
                site.host.write(f"{device}/reset", "1\n")
            else:
                site.host.write(f"{device}/remove", "1\n")
                site.host.write("/sys/bus/pci/rescan", "1\n")
    except HostAccessError as error:
        return climb, str(error)
    for module in _LOAD:
        site.host.run(["modprobe", module])
    return _proven(site, climb, f"PCI reset of {', '.join(climb.addresses)}")


def _unload(site: Site, loaded: list[str], deadline: float) -> str:
    """Remove modules in order; returns why one could not be removed, "" if all are gone."""
    for module in loaded:
        ran = _until(site, ["rmmod", module], deadline)
        if not ran.ok and site.host.exists(f"/sys/module/{module}"):
            return f"{module} was not unloaded: {ran.why}"
    return ""


def _until(site: Site, command: list[str], deadline: float) -> Ran:
    """Run a command again while it says that something is in use, until the deadline.

    A look at the GPUs (a sensor's, the exporter's) holds the device for a moment.
    """
    while True:
        left = max(1.0, deadline - site.host.clock.monotonic())
        ran = site.host.run(command, deadline_seconds=left)
        busy = "in use" in f"{ran.stdout}{ran.stderr}".lower()
        if ran.ok or not busy or site.host.clock.monotonic() + _RETRY_SECONDS >= deadline:
            return ran
        site.host.clock.sleep(_RETRY_SECONDS)


def _proven(site: Site, climb: Climb, did: str) -> tuple[Climb, str]:
    """Look through NVML: only that tells whether it has helped."""
    view = look(site.host, deadline_seconds=_PROOF_SECONDS)
    if view.state is GpuState.OK and not view.nvml.needs_reboot:
        climb = replace(climb, verdict=Verdict.DRIVER_OK, driver_at=site.host.clock.time())
        return climb, f"{did}; NVML sees {len(view.nvml.gpus)} GPUs again"
    return climb, f"{did}; it did not help: {view.fault or 'the driver asks for a reboot'}"
