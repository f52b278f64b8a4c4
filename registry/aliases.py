"""Aliases: names such as ``production`` that move from version to version.

Every move is compare-and-set, goes through policy, and is an event; the history that a
rollback walks back along is the log itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection, insert, select, update

from registry.alias_history import earlier_holder
from registry.audit import AuditLog, check_text
from registry.canonical import Json
from registry.clock import now_us
from registry.database import Database
from registry.errors import ConflictError, IntegrityError, NotFoundError, PolicyError
from registry.gates import Gates, judge
from registry.names import check_alias, check_name
from registry.policy import Policy
from registry.schema import alias as alias_table
from registry.schema import blob, version_file
from registry.versions import Version, Versions


class Anything(Enum):
    """The type of ``ANY``."""

    ANY = "any"


ANY: Final = Anything.ANY
"""For ``expected``: move the alias from wherever it is."""


@dataclass(frozen=True)
class Alias:
    """Where an alias points. ``revision`` counts its moves from 1."""

    model: str
    alias: str
    digest: str
    revision: int
    moved_us: int
    actor: str


class Aliases:
    """Moves and finds aliases."""

    def __init__(
        self, database: Database, audit: AuditLog, versions: Versions, gates: Gates
    ) -> None:
        self._database = database
        self._audit = audit
        self._versions = versions
        self._gates = gates

    def get(self, model: str, alias: str) -> Alias | None:
        """Return the alias, or ``None`` if it points nowhere yet."""
        with self._database.read() as connection:
            return _current(connection, model, alias)

    def all(self, model: str | None = None) -> list[Alias]:
        """Return all aliases, or those of one model."""
        query = select(alias_table).order_by(alias_table.c.model, alias_table.c.alias)
        if model is not None:
            query = query.where(alias_table.c.model == model)
        with self._database.read() as connection:
            return [_alias_of(row) for row in connection.execute(query)]

    def promote(
        self,
        ref: str,
        *,
        alias: str,
        actor: str,
        reason: str,
        policy: Policy,
        expected: str | Anything | None = ANY,
    ) -> Alias:
        """Point ``alias`` of the version's model at the version, if policy allows it.

        Args:
            ref: the version.
            alias: the alias of the version's model.
            actor: who asks for it.
            reason: why, one line; kept in the log.
            policy: the policy in force.
            expected: the version (any reference) that the alias must point at now,
                ``None`` if it must not exist, ``ANY`` for no condition.

        Raises:
            PolicyError: a gate is missing, failed, expired or was measured under another
                policy; each is named.
            IntegrityError: a stored file of the version is known to be damaged.
            ConflictError: the alias is not where ``expected`` says.
            NotFoundError: there is no such version.
        """
        check_alias(alias)
        check_text("reason", reason)
        with self._database.write() as connection:
            target = self._versions.get(ref, connection)
            current = _current(connection, target.model, alias)
            self._compare(connection, current, expected, f"{target.model}:{alias}")
            if current is not None and current.digest == target.digest:
                return current
            _refuse_damaged(connection, target)
            results = self._gates.of_version(target.digest, connection)
            judgement = judge(results, policy, alias, now_us())
            if judgement.reasons:
                raise PolicyError(
                    f"{target.name} may not become {alias}: " + "; ".join(judgement.reasons),
                    where=f"{target.model}:{alias}",
                    fix="run the gates again; see: ironworks registry gates " + target.name,
                )
            rule = policy.rule(alias)
            body: dict[str, Json] = {
                "reason": reason,
                "policy": policy.digest,
                # The rule itself, so that the log tells what was asked for at the time.
                "rule": {"gates": rule.gates, "max_age_seconds": rule.max_age_seconds},
                "gates": [result.id for result in judgement.used],
            }
            return self._move(connection, "alias.moved", current, target, alias, actor, body)

    def rollback(
        self,
        model: str,
        *,
        alias: str,
        actor: str,
        reason: str,
        policy: Policy,
        check: Callable[[Version], list[str]],
        to: str | None = None,
    ) -> Alias:
        """Point ``alias`` back at a version that held it before.

        Gates are not asked, so that this works when they don't; integrity always is.

        Args:
            model: the model.
            alias: its alias.
            actor: who asks for it.
            reason: why, one line; kept in the log.
            policy: the policy in force; recorded, not asked.
            check: re-hashes a version's stored files and returns the problems.
            to: the earlier holder; by default the one before the present one.

        Raises:
            NotFoundError: the alias, or an earlier holder, doesn't exist.
            IntegrityError: the earlier version's stored files are damaged.
            ConflictError: the alias was moved while the files were being hashed.
        """
        check_name("model", model)
        check_alias(alias)
        check_text("reason", reason)
        with self._database.read() as connection:
            before = _current(connection, model, alias)
            if before is None:
                raise NotFoundError("the alias points nowhere", where=f"{model}:{alias}")
            wanted = self._versions.get(to, connection).digest if to else None
            digest = earlier_holder(connection, model, alias, wanted)
            target = self._versions.get(digest, connection)
        if problems := check(target):
            raise IntegrityError(
                f"{target.name} is damaged: " + "; ".join(problems[:3]),
                where=f"{model}:{alias}",
                fix="restore its files by adding the same checkpoint again, or name another --to",
            )
        with self._database.write() as connection:
            current = _current(connection, model, alias)
            if current != before:
                raise ConflictError(
                    "the alias was moved in the meantime", where=f"{model}:{alias}", fix="try again"
                )
            if current.digest == target.digest:
                return current
            body: dict[str, Json] = {"reason": reason, "policy": policy.digest, "gates": []}
            return self._move(connection, "alias.rolled_back", current, target, alias, actor, body)

    def _compare(
        self,
        connection: Connection,
        current: Alias | None,
        expected: str | Anything | None,
        where: str,
    ) -> None:
        if isinstance(expected, Anything):
            return
        wanted = self._versions.get(expected, connection).digest if expected else None
        found = current.digest if current else None
        if found != wanted:
            raise ConflictError(
                f"the alias points at {found[:12] if found else 'nothing'}, "
                f"not at {wanted[:12] if wanted else 'nothing'} as expected",
                where=where,
                fix="look at what changed, then decide again",
            )

    def _move(
        self,
        connection: Connection,
        kind: str,
        current: Alias | None,
        target: Version,
        alias: str,
        actor: str,
        body: dict[str, Json],
    ) -> Alias:
        revision = current.revision + 1 if current else 1
        event = self._audit.append(
            connection,
            kind=kind,
            actor=actor,
            subject=f"{target.model}:{alias}",
            body={
                "from": current.digest if current else None,
                "to": target.digest,
                "revision": revision,
                **body,
            },
        )
        values = {
            "digest": bytes.fromhex(target.digest),
            "revision": revision,
            "moved_us": event.ts_us,
            "actor": actor,
        }
        key = (alias_table.c.model == target.model) & (alias_table.c.alias == alias)
        if current:
            connection.execute(update(alias_table).where(key).values(values))
        else:
            connection.execute(
                insert(alias_table).values(model=target.model, alias=alias, **values)
            )
        return Alias(target.model, alias, target.digest, revision, event.ts_us, actor)


def _current(connection: Connection, model: str, alias: str) -> Alias | None:
    row = connection.execute(
        select(alias_table).where(alias_table.c.model == model, alias_table.c.alias == alias)
    ).first()
    return _alias_of(row) if row else None


def _alias_of(row: Any) -> Alias:
    return Alias(row.model, row.alias, row.digest.hex(), row.revision, row.moved_us, row.actor)


def _refuse_damaged(connection: Connection, target: Version) -> None:
    query = (
        select(version_file.c.path)
        .join(blob, blob.c.digest == version_file.c.blob_digest)
        .where(
            version_file.c.version_digest == bytes.fromhex(target.digest),
            blob.c.damaged_us.is_not(None),
        )
        .order_by(version_file.c.path)
    )
    paths = [row.path for row in connection.execute(query)]
    if paths:
        raise IntegrityError(
            f"stored files of {target.name} are damaged: {', '.join(paths[:5])}",
            where=target.name,
            fix="add the same checkpoint again to restore them",
        )
