"""sha256 of files, one file a thread: hashlib lets go of the interpreter lock."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from registry.errors import CheckpointError
from registry.manifest import FileEntry
from registry.progress import Meter, Progress

CHUNK_BYTES = 1 << 20
_MAX_THREADS = 8


def hash_file(path: Path, meter: Meter | None = None) -> str:
    """Return the sha256 of a file's content in hex.

    Raises:
        OSError: the file can't be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            if meter:
                meter.add(count)
    return digest.hexdigest()


def threads(files: int) -> int:
    """Return how many threads to use for ``files`` files."""
    return max(1, min(files, os.cpu_count() or 1, _MAX_THREADS))


def hash_tree(
    directory: Path, paths: Sequence[str], progress: Progress | None = None
) -> list[FileEntry]:
    """Hash the files at ``paths`` under ``directory``.

    Raises:
        CheckpointError: a file can't be read, or changed while it was read.
    """
    meter = Meter(progress, "hash", sum((directory / path).stat().st_size for path in paths))

    def entry(path: str) -> FileEntry:
        file = directory / path
        try:
            before = file.stat()
            digest = hash_file(file, meter)
            after = file.stat()
        except OSError as error:
            raise CheckpointError(f"can't be read: {error.strerror}", where=path) from error
        if _stamp(before) != _stamp(after):
            raise CheckpointError(
                "the file changed while it was being hashed",
                where=path,
                fix="wait until the copy has finished and try again",
            )
        return FileEntry(path, after.st_size, digest)

    with ThreadPoolExecutor(threads(len(paths)), thread_name_prefix="hash") as pool:
        return list(pool.map(entry, paths))


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    # ctime too: a forged mtime leaves everything but ctime equal.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
