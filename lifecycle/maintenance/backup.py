"""Copies of the registry's database: made while it is in use, proven, and few of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from registry.audit import AuditLog, LogHead
from registry.clock import iso
from registry.database import Database
from registry.errors import DatabaseError, IntegrityError

_PATTERN = "registry-*.db"


@dataclass(frozen=True)
class Backup:
    """One copy and what it holds; ``removed`` names the older ones that made room for it."""

    file: Path
    size: int
    head: LogHead
    removed: tuple[str, ...]


def back_up(database: Database, folder: Path, *, now_us: int, keep: int) -> Backup:
    """Copy ``database`` to ``folder``, verify the copy's log, then drop the oldest copies.

    Stored model files are not copied: they are named by their digest and never change, so
    that rsync of ``registry/blobs`` is a backup of them at any time.

    Args:
        database: of the open registry.
        folder: made if it is missing.
        now_us: microseconds since 1970; names the file.
        keep: how many copies may stay, this one included.

    Raises:
        DatabaseError: the copy can't be written, e.g. because the disk is full.
        IntegrityError: the copy's log does not verify; it is kept as ``.bad`` for a look.
    """
    stamp = iso(now_us).replace("-", "").replace(":", "").split(".")[0]
    target = folder / f"registry-{stamp}Z.db"
    partial = target.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        database.backup(partial)
        head = _verified(partial)
        _durable(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DatabaseError(
            f"the backup failed: {error.strerror}", where=str(folder), fix="free space there"
        ) from error
    except DatabaseError:
        partial.unlink(missing_ok=True)
        raise
    copies = sorted(folder.glob(_PATTERN))
    surplus = [copy for copy in copies[: max(0, len(copies) - keep)] if copy != target]
    for copy in surplus:
        copy.unlink()
    return Backup(target, target.stat().st_size, head, tuple(copy.name for copy in surplus))


def _verified(copy: Path) -> LogHead:
    database = Database(copy)
    try:
        database.check_revision()
        verification = AuditLog(database).verify()
    finally:
        database.close()
    if not verification.ok:
        bad = copy.with_suffix(".bad")
        copy.replace(bad)
        raise IntegrityError(
            f"the copy's log does not verify: {verification.problems[0]}",
            where=str(bad),
            fix="run: ironworks audit verify; the earlier copies are untouched",
        )
    return verification.head


def _durable(partial: Path, target: Path) -> None:
    """Rename, with the bytes on the disk before the name and the name before the answer."""
    for path in (partial, None, target.parent):
        if path is None:
            partial.replace(target)
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
