"""Which file system holds a path; SQLite's locks can't be trusted on network ones."""

from __future__ import annotations

import re
from pathlib import Path

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|ceph|lustre|gpfs|beegfs\w*|glusterfs|ocfs2"
    r"|fuse\.(ceph|sshfs|glusterfs|s3fs|rclone|gcsfuse|goofys|juicefs)"
)


def file_system(path: Path, mountinfo: str | None = None) -> str:
    """Return the type of the file system of ``path``, such as ``ext4``; ``""`` if unknown.

    Args:
        path: need not exist; symbolic links are followed.
        mountinfo: text in the format of ``/proc/self/mountinfo`` (proc(5)), which is
            read when not given.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return ""
    resolved = path.resolve()
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount = Path(_unescape(fields[4]))
        # Later lines are mounted over earlier ones.
        if resolved.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), after.split(" ")[0]
    return kind


def is_network(kind: str) -> bool:
    """Tell whether a file system type is one shared over a network."""
    return _NETWORK.fullmatch(kind) is not None


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
