"""Questions an auditor asks. Every answer carries the head of the log it was read at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TextIO

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from registry.audit import AuditLog, Event, LogHead, Verification, event_of
from registry.clock import iso, now_us
from registry.database import Database
from registry.export import Export, Format, export
from registry.gates import GateResult, Gates
from registry.load_record import LoadRecord, load_record
from registry.schema import audit_event, load
from registry.schema import version as version_table
from registry.versions import Version, Versions

Certainty = Literal["exact", "inferred", "unknown"]

# A lease is renewed every 10 s (serving's heartbeat_seconds); three missed = lapsed.
LEASE_US = 30_000_000


@dataclass(frozen=True)
class Served:
    """One load that answered, or may have answered, at a point in time.

    ``exact``: the log and the lease prove it. ``inferred``: the lease stopped a moment
    before and nothing else is known. ``unknown``: the lease had lapsed, no end was
    recorded, and no later start shows that the process was gone.
    """

    certainty: Certainty
    service: str
    host: str
    model: str
    version: str
    digest: str
    load_id: int
    ready_us: int
    until_us: int | None
    heartbeat_us: int
    note: str


@dataclass(frozen=True)
class AsOf:
    """What was live at ``at_us``. Several rows of one service: a swap was under way."""

    at_us: int
    rows: tuple[Served, ...]
    head: LogHead


@dataclass(frozen=True)
class Trace:
    """Everything the record plane knows of one version, events in order."""

    version: Version
    gates: tuple[GateResult, ...]
    loads: tuple[LoadRecord, ...]
    events: tuple[Event, ...]
    head: LogHead


@dataclass(frozen=True)
class TimeLine:
    """Loads and alias moves in order."""

    events: tuple[Event, ...]
    head: LogHead


class Queries:
    """Reads answers from one consistent snapshot each."""

    def __init__(
        self, database: Database, audit: AuditLog, versions: Versions, gates: Gates
    ) -> None:
        self._database = database
        self._audit = audit
        self._versions = versions
        self._gates = gates

    def as_of(
        self, service: str | None = None, host: str | None = None, *, at_us: int | None = None
    ) -> AsOf:
        """Return which versions were live at ``at_us`` (default now), and how sure that is."""
        at = now_us() if at_us is None else at_us
        query = (
            select(load, version_table.c.version.label("name"))
            .join(version_table, version_table.c.digest == load.c.digest)
            .where(load.c.ready_us <= at)
            .where(or_(load.c.retired_us.is_(None), load.c.retired_us > at))
            .where(or_(load.c.ended_us.is_(None), load.c.ended_us > at))
            .order_by(load.c.service, load.c.host, load.c.ready_us, load.c.id)
        )
        if service is not None:
            query = query.where(load.c.service == service)
        if host is not None:
            query = query.where(load.c.host == host)
        rows: list[Served] = []
        with self._database.read() as connection:
            head = self._audit.head(connection)
            for row in connection.execute(query).all():
                record = load_record(row)
                if not _replaced(connection, record, at):
                    rows.append(_served(record, row.model, row.name, at))
        return AsOf(at, tuple(rows), head)

    def trace(self, ref: str) -> Trace:
        """Return the whole history of a version.

        Raises:
            NotFoundError: there is no such version.
        """
        with self._database.read() as connection:
            found = self._versions.get(ref, connection)
            moved = and_(
                audit_event.c.kind.like("alias.%"),
                or_(
                    func.json_extract(audit_event.c.body, "$.to") == found.digest,
                    func.json_extract(audit_event.c.body, "$.from") == found.digest,
                ),
            )
            files = [entry.sha256 for entry in found.manifest.files]
            repairs = and_(
                audit_event.c.kind.in_(("blob.damaged", "blob.restored")),
                audit_event.c.subject.in_(files),
            )
            events = connection.execute(
                select(audit_event)
                .where(or_(audit_event.c.subject == found.digest, moved, repairs))
                .order_by(audit_event.c.seq)
            )
            loads = connection.execute(
                select(load).where(load.c.digest == bytes.fromhex(found.digest)).order_by(load.c.id)
            )
            return Trace(
                version=found,
                gates=tuple(self._gates.of_version(found.digest, connection)),
                loads=tuple(load_record(row) for row in loads),
                events=tuple(event_of(row) for row in events),
                head=self._audit.head(connection),
            )

    def timeline(self, host: str | None = None, service: str | None = None) -> TimeLine:
        """Return load events, of one host or service if given, and alias moves, in order.

        With a host or service, only aliases of models that it loaded are included.
        """
        query = select(audit_event)
        loads: ColumnElement[bool] = audit_event.c.kind.like("load.%")
        moves = audit_event.c.kind.like("alias.%")
        if host is None and service is None:
            query = query.where(or_(loads, moves))
        else:
            models = select(load.c.model).distinct()
            for column, value in ((load.c.host, host), (load.c.service, service)):
                if value is not None:
                    models = models.where(column == value)
                    field = func.json_extract(audit_event.c.body, f"$.{column.name}")
                    loads = and_(loads, field == value)
            subject = audit_event.c.subject
            model = func.substr(subject, 1, func.instr(subject, ":") - 1)
            query = query.where(or_(loads, and_(moves, model.in_(models))))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(audit_event.c.seq)).all()
            return TimeLine(tuple(event_of(row) for row in rows), self._audit.head(connection))

    def export(self, form: Format, out: TextIO) -> Export:
        """Write the whole log to ``out``; see ``registry.export``."""
        return export(self._audit, form, out)

    def verify(self) -> Verification:
        """Check the whole log; see ``AuditLog.verify``."""
        return self._audit.verify()


def _replaced(connection: Connection, record: LoadRecord, at: int) -> bool:
    """Tell whether a load that never ended was surely gone at ``at``.

    Another API process of the same service on the same host had started by then: the
    old one no longer held the port, and engines die with their parent.
    """
    if record.ended_us is not None or record.heartbeat_us >= at:
        return False
    who = record.identity
    successor = connection.execute(
        select(load.c.id)
        .where(load.c.service == who.service, load.c.host == who.host)
        .where(load.c.id > record.load_id, load.c.started_us <= at)
        .where(or_(load.c.api_pid != who.api_pid, load.c.boot_id != who.boot_id))
        .limit(1)
    ).first()
    return successor is not None


def _served(record: LoadRecord, model: str, name: str, at: int) -> Served:
    ends = [end for end in (record.retired_us, record.ended_us) if end is not None]
    certainty: Certainty = "exact"
    note = ""
    if not ends and record.heartbeat_us < at:
        certainty = "inferred" if at <= record.heartbeat_us + LEASE_US else "unknown"
        note = f"last sign of life {iso(record.heartbeat_us)}; no end was recorded"
    return Served(
        certainty=certainty,
        service=record.identity.service,
        host=record.identity.host,
        model=model,
        version=f"{model}@{name}",
        digest=record.digest,
        load_id=record.load_id,
        ready_us=record.ready_us or 0,
        until_us=min(ends, default=None),
        heartbeat_us=record.heartbeat_us,
        note=note,
    )
