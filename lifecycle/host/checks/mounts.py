"""Space of mounted file systems, as ``df`` of GNU coreutils tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle.host.host import Host


@dataclass(frozen=True)
class Space:
    """One mounted file system; bytes and inodes.

    Attributes:
        inodes: 0 where the file system makes them as needed (btrfs, overlays).
    """

    mount: str
    bytes: int
    bytes_free: int
    inodes: int
    inodes_free: int

    @property
    def text(self) -> str:
        """What is free of what, in GiB."""
        return f"{self.mount}: {gib(self.bytes_free)} of {gib(self.bytes)} free"


def space(host: Host, paths: Sequence[str]) -> list[Space]:
    """Ask for the file systems that hold ``paths``, each once; [] if ``df`` can't tell.

    ``df`` and not statvfs(2): a call on a dead network mount never returns.
    """
    ran = host.run(["df", "-B1", "--output=target,size,avail,itotal,iavail", *paths])
    found = {}
    for line in ran.stdout.splitlines()[1:]:
        # A mount point may hold spaces: the numbers are counted from the end.
        words = line.rsplit(maxsplit=4)
        if len(words) == 5:
            numbers = [int(word) if word.isdecimal() else 0 for word in words[1:]]
            found[words[0]] = Space(words[0].strip(), *numbers)
    return list(found.values())


def is_read_only(host: Host, mount: str) -> bool:
    """Whether a mount point is mounted read-only (/proc/mounts, the last line of it counts)."""
    options = ""
    for line in (host.read("/proc/mounts") or "").splitlines():
        words = line.split()
        if len(words) > 3 and words[1].replace("\\040", " ") == mount:
            options = words[3]
    return "ro" in options.split(",")


def gib(size: int) -> str:
    """Bytes in GiB, or in MiB where that is less than one."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
