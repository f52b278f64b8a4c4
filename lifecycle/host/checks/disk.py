"""Groups ``disk`` and ``shared_memory``: room to write, in files and between processes."""

from __future__ import annotations

from lifecycle.host.checks.mounts import Space, gib, is_read_only, space
from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection

_SHM = "/dev/shm"
_LOW_FRACTION = 0.05


def free_space(inspection: Inspection) -> Outcome:
    """The state folder and the system have room."""
    wanted = inspection.expected.serving.free_disk_bytes
    places = _places(inspection)
    if not places:
        return unknown("df does not tell")
    for place in places:
        if place.bytes_free < wanted:
            status = failed if place.bytes_free < wanted // 10 else warned
            return status(
                f"{place.text}, at least {gib(wanted)} are wanted",
                f"make room: sudo du -xh {place.mount} | sort -h | tail; or move the state folder "
                "(IRONWORKS_STATE) to a larger disk",
            )
    return passed("; ".join(place.text for place in places))


def inodes(inspection: Inspection) -> Outcome | None:
    """There are inodes left: a file system without any is full, whatever its bytes."""
    places = [place for place in _places(inspection) if place.inodes]
    for place in places:
        if place.inodes_free < _LOW_FRACTION * place.inodes:
            return warned(
                f"{place.mount}: {place.inodes_free} of {place.inodes} inodes free",
                f"find what makes small files: sudo du --inodes -x {place.mount} | sort -n | tail",
            )
    return passed(f"{len(places)} file system(s) have inodes") if places else None


def writable(inspection: Inspection) -> Outcome:
    """Nothing that we write to was remounted read-only."""
    places = _places(inspection)
    for place in places:
        if is_read_only(inspection.host, place.mount):
            return failed(
                f"{place.mount} is mounted read-only (/proc/mounts)",
                "look for I/O errors in the kernel's log: a file system goes read-only on errors",
            )
    return passed(f"{', '.join(place.mount for place in places)} can be written")


def size(inspection: Inspection) -> Outcome:
    """Shared memory is large enough (L14): writing past its end is a SIGBUS, not an error."""
    found = space(inspection.host, [_SHM]) if inspection.host.exists(_SHM) else []
    wanted = inspection.expected.serving.shm_bytes
    if not found:
        return failed(f"there is no {_SHM}", f"sudo mount -t tmpfs tmpfs {_SHM}")
    if found[0].bytes_free < wanted:
        status = failed if found[0].bytes < wanted else warned
        return status(
            f"{found[0].text}, {gib(wanted)} are needed",
            f"sudo mount -o remount,size=8G {_SHM}; to keep it: a line in /etc/fstab",
        )
    return passed(f"{found[0].text}, {gib(wanted)} are needed")


def _places(inspection: Inspection) -> list[Space]:
    states = {str(process.state) for process in inspection.serving if process.state}
    return space(inspection.host, ["/", *sorted(states)])


DISK = Group("disk", "disks", (free_space, inodes, writable))
SHARED_MEMORY = Group("shared_memory", "shared memory", (size,))
