"""Which processes hold the GPU's device files, and which modules are in use."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle.host.host import Host, HostAccessError

_DEVICES = "/dev/nvidia"


@dataclass(frozen=True)
class Holder:
    """A process that has a device file of a GPU open.

    Attributes:
        pid: its number.
        name: of its program.
        device: the file it holds.
        hangs: it waits in the kernel (state D) and can't be killed.
        ours: it is one of our own looks, which end by themselves.
    """

    pid: int
    name: str
    device: str
    hangs: bool
    ours: bool


def holders(host: Host) -> list[Holder]:
    """Every process that this user may look into and that holds ``/dev/nvidia*``, by pid."""
    found = {}
    for link in host.glob("/proc/[0-9]*/fd/*"):
        pid = int(link.split("/")[2])
        if pid in found:
            continue
        try:
            target = host.readlink(link) or ""
            if target.startswith(_DEVICES):
                found[pid] = _holder(host, pid, target)
        except HostAccessError:
            continue  # another user's process: an unprivileged look can't know
    return sorted(found.values(), key=lambda holder: holder.pid)


def refcounts(host: Host) -> dict[str, int]:
    """Users of each loaded nvidia module, by name (``/sys/module/NAME/refcnt``)."""
    found = {}
    for path in host.glob("/sys/module/nvidia*/refcnt"):
        found[path.split("/")[3]] = int(host.read(path) or 0)
    return found


def _holder(host: Host, pid: int, device: str) -> Holder:
    name = (host.read(f"/proc/{pid}/comm") or "?").strip()
    command = host.read(f"/proc/{pid}/cmdline") or ""
    # Field 3 of proc_pid_stat(5), after the name in parentheses.
    state = (host.read(f"/proc/{pid}/stat") or ") ?").rpartition(")")[2].split()[0]
    return Holder(pid, name, device, state == "D", "nvml_child.py" in command)
