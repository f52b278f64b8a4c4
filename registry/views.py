"""Directories that a loader reads: a version's files under their own names, no copies.

A view is made of reflinks where the file system has them, else of hard links. It
appears by one rename, so a reader sees all of it or nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from registry.blobs import BlobStore
from registry.errors import DatabaseError, IntegrityError
from registry.manifest import FileEntry, Manifest

_FICLONE = 0x40049409  # linux/fs.h


class Views:
    """The views below ``root``, over the blobs of one store."""

    def __init__(self, root: Path, blobs: BlobStore) -> None:
        self._root = root
        self._blobs = blobs

    def open(self, manifest: Manifest) -> Path:
        """Return the view of ``manifest``, making or mending it first.

        Raises:
            IntegrityError: a blob is missing or has the wrong size.
            DatabaseError: the folder can't be written.
        """
        for entry in manifest.files:
            if not self._blobs.has(entry.sha256, entry.size):
                raise IntegrityError(
                    f"the stored file sha256 {entry.sha256} is missing or has another size",
                    where=entry.path,
                    fix="add the same checkpoint again to restore it",
                )
        target = self._root / manifest.digest
        try:
            if not self._is_current(target, manifest):
                self._build(target, manifest)
        except OSError as error:
            raise DatabaseError(
                f"the view can't be made: {error.strerror}", where=str(error.filename or target)
            ) from error
        return target

    def _is_current(self, view: Path, manifest: Manifest) -> bool:
        return all(self._is_link(view / entry.path, entry) for entry in manifest.files)

    def _is_link(self, path: Path, entry: FileEntry) -> bool:
        """A hard link shares the inode; a reflink is at least as young as its blob."""
        blob = self._blobs.path(entry.sha256).stat()
        try:
            own = path.stat()
        except OSError:
            return False
        if (own.st_dev, own.st_ino) == (blob.st_dev, blob.st_ino):
            return True
        return own.st_size == blob.st_size and own.st_mtime_ns >= blob.st_mtime_ns

    def _build(self, target: Path, manifest: Manifest) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=self._root, prefix=".making-"))
        try:
            fresh = work / "new"
            for entry in manifest.files:
                path = fresh / entry.path
                path.parent.mkdir(parents=True, exist_ok=True)
                _link(self._blobs.path(entry.sha256), path)
            if target.exists():
                target.rename(work / "old")
            try:
                fresh.rename(target)
            except OSError:
                # Another process made the same view in between: use that one.
                if not self._is_current(target, manifest):
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _link(blob: Path, path: Path) -> None:
    with blob.open("rb") as source:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        try:
            fcntl.ioctl(descriptor, _FICLONE, source.fileno())
            return
        except OSError:
            pass  # not a file system with reflinks
        finally:
            os.close(descriptor)
    path.unlink()
    os.link(blob, path)
