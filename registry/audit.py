"""The audit log: append-only, each row's hash covering the one before it.

``hash = SHA256(0x00 ‖ prev ‖ canonical JSON of all other columns)``, where ``body`` is
itself canonical JSON and is stored as the exact text that was hashed. Rows are appended
inside the transaction of the change they tell of, so neither exists without the other.
Triggers in the database refuse everything but appending the next row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from registry.canonical import Json, canonical
from registry.clock import now_us
from registry.database import Database
from registry.errors import InputError
from registry.schema import audit_event

SCHEMA_V = 1
GENESIS = bytes(32)

# Who the log names for what the registry finds or mends by itself.
REGISTRY_ACTOR = "registry"

TRIGGERS = ("audit_event_append", "audit_event_no_delete", "audit_event_no_update")

# Short transactions: with the DELETE journal a reader holds writers up.
_PAGE_ROWS = 5_000
_MAX_TEXT = 500


@dataclass(frozen=True)
class LogHead:
    """The newest row of the log: its number (0 when empty) and its hash in hex."""

    seq: int
    hash_hex: str


@dataclass(frozen=True)
class Event:
    """One row of the log. ``text`` is the body exactly as it was hashed."""

    seq: int
    ts_us: int
    kind: str
    actor: str
    subject: str
    text: str
    prev_hex: str
    hash_hex: str
    schema_v: int
    key_id: str | None

    @property
    def body(self) -> dict[str, Any]:
        """The parsed body."""
        value: dict[str, Any] = json.loads(self.text)
        return value

    def computed_hash(self) -> str:
        """Return the hash, in hex, that this row's columns should have."""
        record: dict[str, Json] = {
            "seq": self.seq,
            "ts_us": self.ts_us,
            "kind": self.kind,
            "actor": self.actor,
            "subject": self.subject,
            "body": self.text,
            "schema_v": self.schema_v,
            "key_id": self.key_id,
        }
        data = b"\x00" + bytes.fromhex(self.prev_hex) + canonical(record)
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Verification:
    """What checking the whole log found.

    Attributes:
        rows: rows that were checked and are good.
        head: the last good row.
        bad_seq: number of the first bad row, ``None`` if there is none.
        problems: why, in words; empty when the log is whole.
    """

    rows: int
    head: LogHead
    bad_seq: int | None
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the log is whole."""
        return not self.problems


class AuditLog:
    """Appends to and reads the log of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self,
        connection: Connection,
        *,
        kind: str,
        actor: str,
        subject: str,
        body: Mapping[str, Json],
    ) -> Event:
        """Append one event in the caller's write transaction.

        Args:
            connection: from ``Database.write``.
            kind: such as ``alias.moved``.
            actor: who caused it: a person, a process or a run.
            subject: what it is about: a manifest digest in hex, or ``model:alias``.
            body: canonical JSON values only.

        Returns:
            The event as stored; ``ts_us`` never runs backwards, whatever the clock does.

        Raises:
            InputError: a value has no canonical form, or actor is empty or too long.
        """
        check_text("actor", actor)
        last = connection.execute(
            select(audit_event.c.seq, audit_event.c.ts_us, audit_event.c.hash)
            .order_by(audit_event.c.seq.desc())
            .limit(1)
        ).first()
        draft = Event(
            seq=last.seq + 1 if last else 1,
            ts_us=max(now_us(), last.ts_us) if last else now_us(),
            kind=kind,
            actor=actor,
            subject=subject,
            text=canonical(body).decode(),
            prev_hex=(last.hash if last else GENESIS).hex(),
            hash_hex="",
            schema_v=SCHEMA_V,
            key_id=None,
        )
        event = Event(**{**vars(draft), "hash_hex": draft.computed_hash()})
        connection.execute(
            insert(audit_event).values(
                seq=event.seq,
                ts_us=event.ts_us,
                kind=kind,
                actor=actor,
                subject=subject,
                body=event.text,
                prev=bytes.fromhex(event.prev_hex),
                hash=bytes.fromhex(event.hash_hex),
                schema_v=event.schema_v,
                key_id=event.key_id,
            )
        )
        return event

    def head(self, connection: Connection | None = None) -> LogHead:
        """Return the newest row's number and hash; (0, zeros) for an empty log."""
        if connection is None:
            with self._database.read() as connection:
                return self.head(connection)
        row = connection.execute(
            select(audit_event.c.seq, audit_event.c.hash)
            .order_by(audit_event.c.seq.desc())
            .limit(1)
        ).first()
        return LogHead(row.seq, row.hash.hex()) if row else LogHead(0, GENESIS.hex())

    def events(self, *, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Yield events in order, from the one after ``after`` to ``until`` inclusive.

        Rows are read in pages of short transactions; the log only grows, so this is
        consistent up to ``until``.
        """
        while True:
            query = select(audit_event).where(audit_event.c.seq > after)
            if until is not None:
                query = query.where(audit_event.c.seq <= until)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(audit_event.c.seq).limit(_PAGE_ROWS)).all()
            for row in rows:
                yield event_of(row)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1].seq

    def verify(self) -> Verification:
        """Check every row's hash, number, link and time, and that the triggers are there.

        Stops at the first bad row: nothing after it can be trusted. A log whose last
        rows were cut off looks whole; only a copy of the head kept elsewhere shows it.
        """
        problems = self._missing_triggers()
        head, last_us, bad = LogHead(0, GENESIS.hex()), 0, None
        for event in self.events():
            if reason := _problem(event, head, last_us):
                bad = event.seq
                problems.insert(0, f"row {event.seq}: {reason}")
                break
            head, last_us = LogHead(event.seq, event.hash_hex), event.ts_us
        return Verification(head.seq, head, bad, tuple(problems))

    def _missing_triggers(self) -> list[str]:
        with self._database.read() as connection:
            rows = connection.exec_driver_sql(
                "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
            ).all()
        present = {row[0] for row in rows}
        return [
            f"the trigger {name} was removed from the database"
            for name in TRIGGERS
            if name not in present
        ]


def event_of(row: Any) -> Event:
    """Build an event from a row of ``audit_event``."""
    return Event(
        seq=row.seq,
        ts_us=row.ts_us,
        kind=row.kind,
        actor=row.actor,
        subject=row.subject,
        text=row.body,
        prev_hex=row.prev.hex(),
        hash_hex=row.hash.hex(),
        schema_v=row.schema_v,
        key_id=row.key_id,
    )


def _problem(event: Event, last: LogHead, last_us: int) -> str | None:
    if event.seq != last.seq + 1:
        return f"rows {last.seq + 1} to {event.seq - 1} are missing before it"
    if event.prev_hex != last.hash_hex:
        return "its prev is not the hash of the row before it"
    try:
        computed = event.computed_hash()
        readable = canonical(event.body).decode() == event.text
    except (InputError, ValueError):
        return "its body is not canonical JSON"
    if event.hash_hex != computed:
        return f"its content was changed: hash is {event.hash_hex}, content gives {computed}"
    if not readable:
        return "its body is not canonical JSON"
    if event.ts_us < last_us:
        return "its time is before that of the row before it"
    return None


def check_text(field: str, value: str) -> str:
    """Return ``value`` if it can stand in the log as a name or a reason.

    Raises:
        InputError: empty, over 500 characters, or with control characters.
    """
    if not value.strip() or len(value) > _MAX_TEXT or not value.isprintable():
        raise InputError(f"{field} must be 1 to {_MAX_TEXT} printable characters", where=field)
    return value
