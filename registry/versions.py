"""Versions: a name, ``model@version``, for one manifest, given once and never reused."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from registry.audit import REGISTRY_ACTOR, AuditLog, check_text
from registry.clock import now_us
from registry.database import Database
from registry.errors import ConflictError, NotFoundError
from registry.manifest import FileEntry, Manifest
from registry.names import MIN_PREFIX, check_name, split_reference
from registry.schema import blob, version, version_file

SHORT_DIGITS = MIN_PREFIX


@dataclass(frozen=True)
class Version:
    """A registered version. ``digest`` is the sha256 of its manifest, in hex."""

    digest: str
    model: str
    version: str
    manifest: Manifest
    registered_us: int
    actor: str
    source: str

    @property
    def name(self) -> str:
        """``model@version``."""
        return f"{self.model}@{self.version}"

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest."""
        return self.digest[:SHORT_DIGITS]


class Versions:
    """Registers versions and finds them."""

    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    def add_blobs(self, files: Iterable[FileEntry], repaired: Collection[str] = ()) -> None:
        """Note that the blobs of ``files`` are stored and whole.

        Args:
            files: one entry a blob.
            repaired: digests of those that were found damaged and written anew; these,
                and any that were marked as damaged, get the event ``blob.restored``.
        """
        with self._database.write() as connection:
            for entry in files:
                digest = bytes.fromhex(entry.sha256)
                row = connection.execute(
                    select(blob.c.damaged_us).where(blob.c.digest == digest)
                ).first()
                if row is None:
                    connection.execute(
                        insert(blob).values(digest=digest, size=entry.size, created_us=now_us())
                    )
                elif row.damaged_us is not None or entry.sha256 in repaired:
                    self._audit.append(
                        connection,
                        kind="blob.restored",
                        actor=REGISTRY_ACTOR,
                        subject=entry.sha256,
                        body={"path": entry.path, "size": entry.size},
                    )
                    connection.execute(
                        update(blob).where(blob.c.digest == digest).values(damaged_us=None)
                    )

    def register(
        self, manifest: Manifest, *, model: str, name: str, actor: str, source: str
    ) -> Version:
        """Register ``manifest`` as ``model@name``; the same again changes nothing.

        Raises:
            ConflictError: the name stands for other content, or the content has another
                name, or its files are not in the store yet.
            InputError: a name, the actor or the source is malformed.
        """
        check_name("model", model)
        check_name("version", name)
        check_text("source", source)
        with self._database.write() as connection:
            if existing := _same(connection, manifest, model, name):
                return existing
            self._need_blobs(connection, manifest)
            event = self._audit.append(
                connection,
                kind="version.registered",
                actor=actor,
                subject=manifest.digest,
                body={
                    "model": model,
                    "version": name,
                    "source": source,
                    "files": len(manifest.files),
                    "bytes": manifest.size,
                    "config_digest": manifest.config_digest,
                    "tokenizer_digest": manifest.tokenizer_digest,
                    "chat_template_digest": manifest.chat_template_digest,
                },
            )
            digest = bytes.fromhex(manifest.digest)
            connection.execute(
                insert(version).values(
                    digest=digest,
                    model=model,
                    version=name,
                    manifest=manifest.canonical().decode(),
                    registered_us=event.ts_us,
                    actor=actor,
                    source=source,
                )
            )
            connection.execute(
                insert(version_file),
                [
                    {
                        "version_digest": digest,
                        "path": entry.path,
                        "blob_digest": bytes.fromhex(entry.sha256),
                    }
                    for entry in manifest.files
                ],
            )
            return Version(manifest.digest, model, name, manifest, event.ts_us, actor, source)

    def _need_blobs(self, connection: Connection, manifest: Manifest) -> None:
        for entry in manifest.files:
            query = select(blob.c.size).where(blob.c.digest == bytes.fromhex(entry.sha256))
            if connection.execute(query).first() is None:
                raise ConflictError(
                    "a file of the manifest is not in the store",
                    where=entry.path,
                    fix="ingest the directory before registering it",
                )

    def get(self, ref: str, connection: Connection | None = None) -> Version:
        """Find a version by ``model@version``, digest, or unique prefix of a digest.

        Raises:
            NotFoundError: there is none.
            ConflictError: several digests begin so.
            InputError: ``ref`` is neither form.
        """
        if connection is None:
            with self._database.read() as connection:
                return self.get(ref, connection)
        parts = split_reference(ref)
        query = select(version)
        if isinstance(parts, tuple):
            query = query.where(version.c.model == parts[0], version.c.version == parts[1])
        else:
            low, high = bytes.fromhex(parts.ljust(64, "0")), bytes.fromhex(parts.ljust(64, "f"))
            query = query.where(version.c.digest.between(low, high))
        rows = connection.execute(query.limit(2)).all()
        if not rows:
            raise NotFoundError(
                "there is no such version", where=ref, fix="see: ironworks registry list"
            )
        if len(rows) > 1:
            raise ConflictError(
                "several versions begin with these digits", where=ref, fix="give more digits"
            )
        return version_of(rows[0])

    def all(self, model: str | None = None) -> list[Version]:
        """Return all versions, or those of one model, in order of registration."""
        query = select(version).order_by(version.c.registered_us, version.c.digest)
        if model is not None:
            query = query.where(version.c.model == model)
        with self._database.read() as connection:
            return [version_of(row) for row in connection.execute(query)]


def _same(connection: Connection, manifest: Manifest, model: str, name: str) -> Version | None:
    """Return the version if this content already has this name; refuse any other overlap."""
    by_name = connection.execute(
        select(version).where(version.c.model == model, version.c.version == name)
    ).first()
    if by_name is not None:
        found = version_of(by_name)
        if found.digest == manifest.digest:
            return found
        raise ConflictError(
            f"this name already stands for other content (sha256 {found.short}…)",
            where=found.name,
            fix="a version never changes: register the new content under a new version",
        )
    by_digest = connection.execute(
        select(version).where(version.c.digest == bytes.fromhex(manifest.digest))
    ).first()
    if by_digest is not None:
        found = version_of(by_digest)
        raise ConflictError(
            f"the same content is already registered as {found.name}",
            where=f"{model}@{name}",
            fix=f"use {found.name}; one content has one name, so that the log is clear",
        )
    return None


def version_of(row: Any) -> Version:
    """Build a version from a row of the table ``version``."""
    return Version(
        digest=row.digest.hex(),
        model=row.model,
        version=row.version,
        manifest=Manifest.from_canonical(row.manifest.encode()),
        registered_us=row.registered_us,
        actor=row.actor,
        source=row.source,
    )
