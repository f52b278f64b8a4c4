"""Brings a directory's files into the store, and mends stored ones that were damaged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from registry.blobs import BlobStore
from registry.hashing import threads
from registry.manifest import FileEntry, Manifest
from registry.progress import Meter, Progress
from registry.versions import Versions


@dataclass(frozen=True)
class IngestResult:
    """What an ingest did: blobs copied, blobs that were there and whole, bytes copied."""

    new_blobs: int
    reused_blobs: int
    bytes_written: int


def ingest(
    blobs: BlobStore,
    versions: Versions,
    directory: Path,
    manifest: Manifest,
    progress: Progress | None = None,
) -> IngestResult:
    """Copy the files of ``manifest`` from ``directory``; see ``Registry.ingest``."""
    meter = Meter(progress, "store", manifest.size)
    unique = list({entry.sha256: entry for entry in manifest.files}.values())
    repaired: set[str] = set()

    def store(entry: FileEntry) -> bool:
        if blobs.path(entry.sha256).exists():
            if blobs.problem(entry, meter) is None:
                return False
            repaired.add(entry.sha256)
        blobs.put(directory / entry.path, entry, meter)
        return True

    with ThreadPoolExecutor(threads(len(unique)), thread_name_prefix="ingest") as pool:
        written = list(pool.map(store, unique))
    versions.add_blobs(unique, repaired)
    copied = [entry.size for entry, new in zip(unique, written, strict=True) if new]
    return IngestResult(len(copied), len(unique) - len(copied), sum(copied))
