"""What a version's traffic and answers looked like when it went into production.

Frozen once: later observations are compared with it, so it must not follow them. The log
holds the digest of each reference, and so proves that it was not adjusted afterwards.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, select

from registry.audit import AuditLog
from registry.canonical import Json, canonical
from registry.database import Database
from registry.errors import InputError
from registry.schema import drift_reference
from registry.versions import Versions

_KIND = re.compile(r"[a-z][a-zA-Z0-9:/._-]{0,199}")


@dataclass(frozen=True)
class Reference:
    """One frozen reference. ``recorded_us``: when."""

    digest: str
    kind: str
    body: dict[str, Any] = field(repr=False)
    recorded_us: int


class References:
    """Freezes references and finds them again."""

    def __init__(self, database: Database, audit: AuditLog, versions: Versions) -> None:
        self._database = database
        self._audit = audit
        self._versions = versions

    def freeze(self, ref: str, kind: str, body: Mapping[str, Json], *, actor: str) -> Reference:
        """Keep ``body`` unless there is one of this kind; event ``drift.frozen``.

        Args:
            ref: the version.
            kind: what is referred to, such as ``canary``.
            body: canonical JSON values only (no floats).
            actor: who measured it.

        Returns:
            What holds now: the earlier one if there was one.

        Raises:
            NotFoundError: there is no such version.
            InputError: the kind is malformed, or a value has no canonical form.
        """
        if not _KIND.fullmatch(kind):
            raise InputError(f"{kind[:60]!r} is not a reference's kind", where="kind")
        text = canonical(body)
        with self._database.write() as connection:
            digest = self._versions.get(ref, connection).digest
            if (before := _find(connection, digest, kind)) is not None:
                return before
            event = self._audit.append(
                connection,
                kind="drift.frozen",
                actor=actor,
                subject=digest,
                body={"kind": kind, "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)},
            )
            connection.execute(
                insert(drift_reference).values(
                    version_digest=bytes.fromhex(digest),
                    kind=kind,
                    body=text.decode(),
                    recorded_us=event.ts_us,
                )
            )
            return Reference(digest, kind, json.loads(text), event.ts_us)

    def get(self, ref: str, kind: str) -> Reference | None:
        """Return the reference of that kind, ``None`` if none was frozen yet.

        Raises:
            NotFoundError: there is no such version.
        """
        with self._database.read() as connection:
            return _find(connection, self._versions.get(ref, connection).digest, kind)


def _find(connection: Connection, digest: str, kind: str) -> Reference | None:
    row = connection.execute(
        select(drift_reference).where(
            drift_reference.c.version_digest == bytes.fromhex(digest),
            drift_reference.c.kind == kind,
        )
    ).first()
    if row is None:
        return None
    return Reference(digest, kind, json.loads(row.body), row.recorded_us)
