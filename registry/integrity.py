"""Re-hashes what is stored, and keeps note of what is damaged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, select, update

from registry.audit import REGISTRY_ACTOR, AuditLog
from registry.blobs import BlobStore
from registry.database import Database
from registry.hashing import threads
from registry.manifest import FileEntry
from registry.progress import Meter, Progress
from registry.schema import blob, version, version_file


class Integrity:
    """Compares stored files with their digests.

    Damage is marked in the database, so that nothing damaged is promoted, and is an
    event the first time it is seen. ``ingest`` of the same content clears the mark.
    """

    def __init__(self, database: Database, audit: AuditLog, blobs: BlobStore) -> None:
        self._database = database
        self._audit = audit
        self._blobs = blobs

    def check(
        self, files: tuple[FileEntry, ...], *, label: str, progress: Progress | None = None
    ) -> list[str]:
        """Re-hash the blobs of ``files``; return a sentence for each that is not right."""
        meter = Meter(progress, label, sum(entry.size for entry in files))
        with ThreadPoolExecutor(threads(len(files)), thread_name_prefix="verify") as pool:
            found = list(pool.map(lambda entry: self._blobs.problem(entry, meter), files))
        problems = {
            entry: text for entry, text in zip(files, found, strict=True) if text is not None
        }
        if problems:
            self._mark(problems)
        return list(problems.values())

    def _mark(self, problems: dict[FileEntry, str]) -> None:
        with self._database.write() as connection:
            for entry, text in problems.items():
                digest = bytes.fromhex(entry.sha256)
                row = connection.execute(
                    select(blob.c.damaged_us).where(blob.c.digest == digest)
                ).first()
                if row is None or row.damaged_us is not None:
                    continue
                event = self._audit.append(
                    connection,
                    kind="blob.damaged",
                    actor=REGISTRY_ACTOR,
                    subject=entry.sha256,
                    body={"path": entry.path, "size": entry.size, "problem": text},
                )
                connection.execute(
                    update(blob).where(blob.c.digest == digest).values(damaged_us=event.ts_us)
                )

    def known(self) -> tuple[FileEntry, ...]:
        """Return all blobs in the database; each path is ``model@version/path`` of one user."""
        name = version.c.model + "@" + version.c.version + "/" + version_file.c.path
        query = (
            select(blob.c.digest, blob.c.size, func.min(name).label("name"))
            .outerjoin(version_file, version_file.c.blob_digest == blob.c.digest)
            .outerjoin(version, version.c.digest == version_file.c.version_digest)
            .group_by(blob.c.digest)
            .order_by(blob.c.digest)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(
            FileEntry(row.name or f"unused/{row.digest.hex()}", row.size, row.digest.hex())
            for row in rows
        )
