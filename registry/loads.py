"""What was loaded where and when: one row a load, each change of it an event.

A load goes ``started → verified → ready → retired → unloaded``, or ends in ``failed``
from anywhere. ``retired`` means that new requests go to another version while running
ones finish. A killed process tells nothing any more: its lease (the heartbeat) stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy import Connection, func, insert, select, update

from registry.audit import AuditLog, Event, LogHead, check_text
from registry.canonical import Json, canonical
from registry.clock import now_us
from registry.database import Database
from registry.errors import ConflictError, IntegrityError, NotFoundError
from registry.load_record import LoadIdentity, LoadRecord, LoadTicket, State, load_record
from registry.schema import load
from registry.versions import Version, Versions

__all__ = ["LoadIdentity", "LoadLog", "LoadRecord", "LoadTicket"]

# From which states a load may enter each state.
_FROM: Mapping[State, tuple[State, ...]] = {
    "verified": ("started",),
    "ready": ("verified",),
    "retired": ("ready",),
    "unloaded": ("started", "verified", "ready", "retired"),
    "failed": ("started", "verified", "ready", "retired"),
}


class LoadLog:
    """Records loads. Every method is one short transaction with at most one event."""

    def __init__(self, database: Database, audit: AuditLog, versions: Versions) -> None:
        self._database = database
        self._audit = audit
        self._versions = versions

    def started(self, digest: str, who: LoadIdentity) -> LoadTicket:
        """Record that ``who`` begins to load the version with this digest.

        Raises:
            NotFoundError: no such version is registered: nothing else may be loaded.
            InputError: a field of ``who`` has no canonical form.
        """
        identity = asdict(who)
        with self._database.write() as connection:
            found = self._versions.get(digest, connection)
            last = connection.execute(select(func.max(load.c.id))).scalar()
            number = (last or 0) + 1
            event = self._audit.append(
                connection,
                kind="load.started",
                actor=_actor(who),
                subject=found.digest,
                body={"load": number, "version": found.name, **identity},
            )
            connection.execute(
                insert(load).values(
                    id=number,
                    digest=bytes.fromhex(found.digest),
                    service=who.service,
                    model=who.model,
                    host=who.host,
                    boot_id=who.boot_id,
                    pid=who.pid,
                    api_pid=who.api_pid,
                    process_start_us=who.process_start_us,
                    identity=canonical(identity).decode(),
                    started_us=event.ts_us,
                    heartbeat_us=event.ts_us,
                )
            )
            return LoadTicket(number, LogHead(event.seq, event.hash_hex))

    def verified(
        self, load_id: int, *, files: Mapping[str, str], seconds: Mapping[str, float]
    ) -> LogHead:
        """Record the digests of the bytes that were read, if they are the manifest's.

        Args:
            load_id: from the ticket.
            files: sha256 in hex by path; all weights and config.json must be among them.
            seconds: time by phase.

        Raises:
            IntegrityError: a digest differs, or a weight file is not covered; nothing is
                recorded (report ``failed``).
        """
        with self._database.write() as connection:
            record = self._record(connection, load_id)
            _compare(files, self._versions.get(record.digest, connection))
            body: dict[str, Json] = {"files": dict(files), "microseconds": _micro(seconds)}
            return self._enter(connection, record, "verified", body, {})

    def ready(self, load_id: int, *, seconds: Mapping[str, float]) -> LogHead:
        """Record that the load answers requests from now on."""
        return self._change(load_id, "ready", {"microseconds": _micro(seconds)})

    def retired(self, load_id: int) -> LogHead:
        """Record that new requests go to another load from now on."""
        return self._change(load_id, "retired", {})

    def unloaded(self, load_id: int, *, reason: str) -> LogHead:
        """Record that the engine is gone on purpose. Told twice, it is recorded once."""
        check_text("reason", reason)
        ended = {"end_kind": "unloaded", "end_reason": reason}
        return self._change(load_id, "unloaded", {"reason": reason}, ended)

    def failed(self, load_id: int, *, phase: str, reason: str) -> LogHead:
        """Record that the load, or its engine, died. Told twice, it is recorded once.

        Args:
            load_id: from the ticket.
            phase: what it was doing, such as ``verify`` or ``serving``.
            reason: one line; longer text is cut, since a failure must never go unrecorded.
        """
        reason = _one_line(reason)
        ended = {"end_kind": "failed", "end_reason": reason}
        return self._change(load_id, "failed", {"phase": phase, "reason": reason}, ended)

    def heartbeat(self, load_id: int) -> None:
        """Renew the lease: the load is alive now. Not an event; a load that ended ignores it."""
        with self._database.write() as connection:
            connection.execute(
                update(load)
                .where(load.c.id == load_id, load.c.ended_us.is_(None))
                .values(heartbeat_us=func.max(load.c.heartbeat_us, now_us()))
            )

    def get(self, load_id: int) -> LoadRecord:
        """Return one load.

        Raises:
            NotFoundError: there is none of this number.
        """
        with self._database.read() as connection:
            return self._record(connection, load_id)

    def latest(self, service: str) -> LoadRecord | None:
        """Return the last load that a service began, ``None`` if it never began one.

        Tells an orderly stop (``unloaded``) from a death: a killed process says nothing.
        """
        query = select(load).where(load.c.service == service).order_by(load.c.id.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return load_record(row) if row else None

    def _record(self, connection: Connection, load_id: int) -> LoadRecord:
        row = connection.execute(select(load).where(load.c.id == load_id)).first()
        if row is None:
            raise NotFoundError("there is no such load", where=f"load {load_id}")
        return load_record(row)

    def _change(
        self,
        load_id: int,
        state: State,
        body: Mapping[str, Json],
        columns: Mapping[str, str] | None = None,
    ) -> LogHead:
        with self._database.write() as connection:
            record = self._record(connection, load_id)
            if record.state == state and record.ended_us is not None:
                return self._audit.head(connection)
            return self._enter(connection, record, state, body, columns or {})

    def _enter(
        self,
        connection: Connection,
        record: LoadRecord,
        state: State,
        body: Mapping[str, Json],
        columns: Mapping[str, str],
    ) -> LogHead:
        if record.state not in _FROM[state]:
            raise ConflictError(
                f"a load that is {record.state} can't become {state}",
                where=f"load {record.load_id}",
            )
        who = record.identity
        event = self._audit.append(
            connection,
            kind=f"load.{state}",
            actor=_actor(who),
            subject=record.digest,
            body={
                "load": record.load_id,
                "service": who.service,
                "host": who.host,
                "model": who.model,
                **body,
            },
        )
        column = "ended_us" if state in ("unloaded", "failed") else f"{state}_us"
        connection.execute(
            update(load)
            .where(load.c.id == record.load_id)
            .values({column: event.ts_us, "heartbeat_us": _later(record, event), **columns})
        )
        return LogHead(event.seq, event.hash_hex)


def _actor(who: LoadIdentity) -> str:
    return f"{who.service}@{who.host}"


def _later(record: LoadRecord, event: Event) -> int:
    return max(record.heartbeat_us, event.ts_us)


def _micro(seconds: Mapping[str, float]) -> dict[str, int]:
    return {phase: round(value * 1_000_000) for phase, value in seconds.items()}


def _one_line(text: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in text).strip()
    return line[:500] or "no reason was given"


def _compare(files: Mapping[str, str], version: Version) -> None:
    expected = {entry.path: entry.sha256 for entry in version.manifest.files}
    for path, digest in files.items():
        if expected.get(path) != digest:
            raise IntegrityError(
                f"read sha256 {digest}, the manifest of {version.name} says "
                f"{expected.get(path, 'nothing')}",
                where=path,
                fix="see: ironworks registry fsck",
            )
    for path in expected:
        if (path.endswith(".safetensors") or path == "config.json") and path not in files:
            raise IntegrityError("the digest of this file was not reported", where=path)
