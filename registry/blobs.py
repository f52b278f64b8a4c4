"""Content-addressed files: ``blobs/sha256/ab/<hex>``, written once, never changed.

A blob is copied to a temporary file in the same file system, hashed on the way, made
durable, and only then given its name; so a name always stands for whole, right content,
whenever the power fails. Two writers of one digest both succeed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from registry.errors import DatabaseError, IntegrityError
from registry.hashing import CHUNK_BYTES, hash_file
from registry.manifest import FileEntry
from registry.progress import Meter


class BlobStore:
    """The blobs below ``root``.

    Args:
        root: the ``blobs`` folder; made when the first blob is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"

    def path(self, sha256: str) -> Path:
        """Return where the blob of this digest is, or would be."""
        return self._root / "sha256" / sha256[:2] / sha256

    def has(self, sha256: str, size: int) -> bool:
        """Tell whether a blob of this digest and size is there; its content isn't read."""
        try:
            return self.path(sha256).stat().st_size == size
        except OSError:
            return False

    def problem(self, entry: FileEntry, meter: Meter | None = None) -> str | None:
        """Re-hash the stored blob of ``entry``; return what is wrong with it, or ``None``."""
        try:
            size = self.path(entry.sha256).stat().st_size
            found = hash_file(self.path(entry.sha256), meter)
        except FileNotFoundError:
            return f"{entry.path}: the stored file sha256 {entry.sha256} is missing"
        except OSError as error:
            return f"{entry.path}: the stored file can't be read: {error.strerror}"
        if found == entry.sha256 and size == entry.size:
            return None
        return (
            f"{entry.path}: stored bytes are sha256 {found} ({size} bytes), "
            f"expected {entry.sha256} ({entry.size} bytes)"
        )

    def put(self, source: Path, entry: FileEntry, meter: Meter | None = None) -> None:
        """Copy ``source`` in as the blob of ``entry``, replacing any file of that name.

        Raises:
            IntegrityError: the bytes copied don't have the digest of ``entry``.
            DatabaseError: the store can't be written, for example because it is full.
        """
        target = self.path(entry.sha256)
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._incoming, prefix=entry.sha256[:12] + "-")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "wb", buffering=0) as file:
                    found = _copy(source, file.fileno(), meter)
                    os.fchmod(file.fileno(), 0o444)
                    os.fsync(file.fileno())
                if found != entry.sha256:
                    raise IntegrityError(
                        f"the bytes read now are sha256 {found}, the manifest says {entry.sha256}",
                        where=entry.path,
                        fix="the file changed after it was hashed; start again",
                    )
                temporary.rename(target)
            finally:
                temporary.unlink(missing_ok=True)
            for folder in (target.parent, target.parent.parent, self._root):
                sync_folder(folder)
        except OSError as error:
            raise DatabaseError(
                f"the file can't be stored: {error.strerror}",
                where=str(error.filename or self._root),
                fix="free space or fix permissions, then run the same command again",
            ) from error


def _copy(source: Path, target: int, meter: Meter | None) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with source.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            written = 0
            while written < count:
                written += os.write(target, buffer[written:count])
            if meter:
                meter.add(count)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make names created in ``folder`` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
