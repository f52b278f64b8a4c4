"""The registry: the one object through which the other planes keep and find versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from registry.aliases import ANY, Alias, Aliases, Anything
from registry.audit import AuditLog, Event
from registry.blobs import BlobStore
from registry.canonical import Json
from registry.database import Database
from registry.errors import DatabaseError
from registry.facts import record_fact
from registry.fleet import Fleet
from registry.gates import GateResult, Gates, Number, Outcome
from registry.hashing import hash_tree
from registry.ingest import IngestResult, ingest
from registry.integrity import Integrity
from registry.loads import LoadLog
from registry.manifest import Manifest, manifest_of
from registry.migrate import migrate
from registry.policy import Policy, load_policy
from registry.progress import Progress
from registry.queries import Queries
from registry.references import References
from registry.safe_files import list_files
from registry.versions import Version, Versions
from registry.views import Views

__all__ = ["ANY", "Alias", "GateResult", "IngestResult", "Registry", "Version"]

DATABASE_FILE = "registry.db"


class Registry:
    """A registry folder, opened. Thread-safe; cheap to open; also a context manager.

    Attributes:
        root: the folder.
        loads: records loads.
        fleet: which replicas should run.
        references: what drift is measured against.
        audit: the log itself.
        queries: questions an auditor asks.
    """

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.database = database
        self.audit = AuditLog(database)
        self._blobs = BlobStore(root / "blobs")
        self._views = Views(root / "views", self._blobs)
        self._versions = Versions(database, self.audit)
        self._gates = Gates(database, self.audit, self._versions)
        self._aliases = Aliases(database, self.audit, self._versions, self._gates)
        self.integrity = Integrity(database, self.audit, self._blobs)
        self.loads = LoadLog(database, self.audit, self._versions)
        self.fleet = Fleet(database, self.audit)
        self.references = References(database, self.audit, self._versions)
        self.queries = Queries(database, self.audit, self._versions, self._gates)

    @classmethod
    def open(cls, root: Path, *, create: bool = True) -> Registry:
        """Open the registry in ``root`` (``StatePaths.registry``).

        Args:
            root: the folder.
            create: make the folder and the database if they are missing.

        Raises:
            DatabaseError: it doesn't exist and ``create`` is false, its schema is older
                or newer than this program, or it is on a network file system.
        """
        path = root / DATABASE_FILE
        fresh = not path.exists()
        if fresh and not create:
            raise DatabaseError(
                "there is no registry here", where=str(root), fix="run: ironworks registry init"
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseError(
                f"the registry's folder can't be made: {error.strerror}", where=str(root)
            ) from error
        database = Database(path)
        try:
            # An empty file is what a crash between creating and migrating leaves.
            if fresh or (create and database.revision() is None):
                migrate(database)
            database.check_revision()
        except BaseException:
            database.close()
            raise
        return cls(root, database)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __enter__(self) -> Registry:
        """Return the registry itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the database."""
        self.close()

    @property
    def policy(self) -> Policy:
        """The promotion policy in force now (``policy.json``, else the built-in one)."""
        return load_policy(self.root)

    def build_manifest(self, directory: Path, *, progress: Progress | None = None) -> Manifest:
        """Hash all files of ``directory``, one file a thread.

        Raises:
            CheckpointError: a file is refused (see ``registry.safe_files``), unreadable,
                or changes while it is read.
        """
        return manifest_of(directory, hash_tree(directory, list_files(directory), progress))

    def ingest(
        self, directory: Path, manifest: Manifest, *, progress: Progress | None = None
    ) -> IngestResult:
        """Copy the files of ``manifest`` into the store, hashing them again on the way.

        A file that is stored already is re-hashed where it is, and replaced if damaged.

        Raises:
            IntegrityError: a file doesn't have the manifest's digest any more.
            DatabaseError: the store can't be written, for example because it is full.
        """
        return ingest(self._blobs, self._versions, directory, manifest, progress)

    def register(
        self, manifest: Manifest, *, model: str, version: str, actor: str, source: str
    ) -> Version:
        """Register an ingested manifest as ``model@version``; event ``version.registered``.

        The same content under the same name again changes nothing.

        Raises:
            ConflictError: the name stands for other content, the content has another
                name, or it isn't ingested.
            InputError: a name is malformed.
        """
        return self._versions.register(
            manifest, model=model, name=version, actor=actor, source=source
        )

    def version(self, ref: str) -> Version:
        """Find a version by ``model@version``, digest, or its unique prefix (≥ 12 digits).

        Raises:
            NotFoundError: there is none.
            ConflictError: the prefix is ambiguous.
            InputError: ``ref`` is not a reference.
        """
        return self._versions.get(ref)

    def versions(self, model: str | None = None) -> list[Version]:
        """Return all versions, or those of one model, in order of registration."""
        return self._versions.all(model)

    def alias(self, model: str, alias: str) -> Alias | None:
        """Return where an alias points, or ``None``."""
        return self._aliases.get(model, alias)

    def aliases(self, model: str | None = None) -> list[Alias]:
        """Return all aliases, or those of one model."""
        return self._aliases.all(model)

    def promote(
        self,
        ref: str,
        *,
        alias: str,
        actor: str,
        reason: str,
        expected: str | Anything | None = ANY,
    ) -> Alias:
        """Point an alias at a version, if its gates satisfy the policy; event ``alias.moved``.

        Args:
            ref: the version.
            alias: the alias of the version's model.
            actor: who asks for it.
            reason: why, one line; kept in the log.
            expected: compare-and-set: the version it must point at now, ``None`` if it
                must not exist, ``ANY`` for no condition.

        Raises:
            PolicyError: names each gate that is missing, failed or expired.
            IntegrityError: a stored file is damaged. All are re-hashed first: a gate's
                result says what they were then, not what they are now.
            ConflictError: the alias is not where ``expected`` says.
            NotFoundError: there is no such version.
        """
        target = self.version(ref)
        current = self.alias(target.model, alias)
        if current is None or current.digest != target.digest:
            self.check_integrity(target.digest)  # marks what is damaged, which is then refused
        return self._aliases.promote(
            ref, alias=alias, actor=actor, reason=reason, policy=self.policy, expected=expected
        )

    def rollback(
        self, model: str, *, alias: str, actor: str, reason: str, to: str | None = None
    ) -> Alias:
        """Point an alias back at an earlier holder of it; event ``alias.rolled_back``.

        Gates are not asked; the stored files are re-hashed first, always.

        Raises:
            NotFoundError: there is no alias or no such earlier holder.
            IntegrityError: its stored files are damaged.
        """
        return self._aliases.rollback(
            model,
            alias=alias,
            actor=actor,
            reason=reason,
            policy=self.policy,
            check=lambda target: self.check_integrity(target.digest),
            to=to,
        )

    def record_gate(
        self,
        ref: str,
        *,
        gate: str,
        outcome: Outcome,
        numbers: Mapping[str, Number],
        actor: str,
        run_id: str,
    ) -> GateResult:
        """Record a gate's result under the policy in force; event ``gate.recorded``.

        Args:
            ref: the version.
            gate: the gate's name, such as ``integrity``.
            outcome: ``pass``, ``fail`` or ``inconclusive``.
            actor: who measured.
            numbers: what was measured; integers, strings and booleans (no floats).
            run_id: the run that measured it.

        Raises:
            NotFoundError: there is no such version.
            InputError: a field is malformed.
        """
        return self._gates.record(
            ref,
            gate=gate,
            outcome=outcome,
            numbers=numbers,
            policy=self.policy,
            actor=actor,
            run_id=run_id,
        )

    def gates(self, ref: str) -> list[GateResult]:
        """Return all gate results of a version, oldest first."""
        return self._gates.all(ref)

    def check_integrity(self, ref: str, *, progress: Progress | None = None) -> list[str]:
        """Re-hash the stored files of a version; ``[]`` means that all are right.

        Damage found is marked (nothing damaged can be promoted) and logged once.
        """
        found = self._versions.get(ref)
        return self.integrity.check(
            found.manifest.files, label=f"verify {found.name}", progress=progress
        )

    def view(self, ref: str) -> Path:
        """Return a directory with the version's files under their own names.

        Made atomically of links to the blobs, once. Read-only by agreement: the files
        are the blobs themselves.

        Raises:
            IntegrityError: a stored file is missing.
        """
        return self._views.open(self._versions.get(ref).manifest)

    def record(self, kind: str, subject: str, body: Mapping[str, Json], *, actor: str) -> Event:
        """Write into the log what the control plane saw or did; see ``registry.facts``.

        Raises:
            InputError: the kind is one that other methods write, or a value has no
                canonical form (there are no floats).
        """
        return record_fact(self.database, self.audit, kind, subject, body, actor=actor)
