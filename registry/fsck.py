"""Compares everything the registry holds: files with digests, rows with the log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, select

from registry.audit import LogHead
from registry.progress import Progress
from registry.schema import alias, desired_replica, gate_result, load, version
from registry.store import Registry


@dataclass(frozen=True)
class FsckReport:
    """What was looked at and what is wrong; ``notes`` are harmless leftovers."""

    blobs: int
    bytes: int
    events: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    head: LogHead


def fsck(registry: Registry, *, progress: Progress | None = None) -> FsckReport:
    """Re-hash all stored files, verify the log, and replay it against the tables."""
    files = registry.integrity.known()
    verification = registry.audit.verify()
    problems = [f"audit log: {problem}" for problem in verification.problems]
    if verification.bad_seq is None:
        problems += _replay(registry)
    problems += registry.integrity.check(files, label="fsck", progress=progress)
    return FsckReport(
        blobs=len(files),
        bytes=sum(entry.size for entry in files),
        events=verification.rows,
        problems=tuple(problems),
        notes=tuple(_leftovers(registry.root / "blobs", {entry.sha256 for entry in files})),
        head=registry.audit.head(),
    )


@dataclass
class _Expected:
    """What the tables must hold, by table and key, after all events of the log."""

    versions: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, Any] = field(default_factory=dict)
    gates: dict[str, Any] = field(default_factory=dict)
    loads: dict[str, Any] = field(default_factory=dict)
    replicas: dict[str, Any] = field(default_factory=dict)


def _replay(registry: Registry) -> Iterator[str]:
    """Rebuild the tables' contents from the log and name each row that differs."""
    with registry.database.read() as connection:
        found = _tables(connection)
        head = registry.audit.head(connection)
    expected = _Expected()
    for event in registry.audit.events(until=head.seq):
        body = event.body
        family, _, what = event.kind.partition(".")
        if event.kind == "version.registered":
            name = f"{body['model']}@{body['version']}"
            expected.versions[event.subject] = (name, event.ts_us)
        elif family == "alias":
            expected.aliases[event.subject] = (body["to"], body["revision"], event.ts_us)
        elif event.kind == "gate.recorded":
            result = (event.subject, body["gate"], body["outcome"], body["policy"])
            expected.gates[str(body["id"])] = result
        elif family == "load":
            key = str(body["load"])
            digest, times = expected.loads.get(key, (event.subject, {}))
            column = "ended" if what in ("unloaded", "failed") else what
            expected.loads[key] = (digest, {**times, column: event.ts_us})
        elif event.kind == "replica.desired":
            expected.replicas.pop(event.subject, None)
            if body["to"] is not None:
                expected.replicas[event.subject] = (body["to"], event.ts_us)
    for table in ("versions", "aliases", "gates", "loads", "replicas"):
        wanted, present = getattr(expected, table), getattr(found, table)
        for key in sorted(wanted.keys() | present.keys()):
            if key not in present:
                yield f"{table}: {key} is in the log but not in the table"
            elif key not in wanted:
                yield f"{table}: {key} is in the table but not in the log"
            elif wanted[key] != present[key]:
                yield f"{table}: {key} is {present[key]}, the log says {wanted[key]}"


def _tables(connection: Connection) -> _Expected:
    def rows(table: Table) -> Sequence[Any]:
        return connection.execute(select(table)).all()

    found = _Expected()
    for row in rows(version):
        digest = hashlib.sha256(row.manifest.encode()).hexdigest()
        found.versions[digest] = (f"{row.model}@{row.version}", row.registered_us)
    for row in rows(alias):
        where = (row.digest.hex(), row.revision, row.moved_us)
        found.aliases[f"{row.model}:{row.alias}"] = where
    for row in rows(gate_result):
        result = (row.digest.hex(), row.gate, row.outcome, row.policy.hex())
        found.gates[str(row.id)] = result
    for row in rows(load):
        times = {
            name: value
            for name in ("started", "verified", "ready", "retired", "ended")
            if (value := getattr(row, f"{name}_us")) is not None
        }
        found.loads[str(row.id)] = (row.digest.hex(), times)
    for row in rows(desired_replica):
        declared = dict(row._mapping)
        changed_us, _ = declared.pop("changed_us"), declared.pop("actor")
        found.replicas[row.service] = (declared, changed_us)
    return found


def _leftovers(blobs: Path, known: set[str]) -> Iterator[str]:
    unfinished = len(list((blobs / "incoming").glob("*")))
    if unfinished:
        yield f"{unfinished} unfinished copies in {blobs / 'incoming'}, left by a crash or running"
    stray = [path for path in (blobs / "sha256").glob("??/*") if path.name not in known]
    if stray:
        yield f"{len(stray)} stored files that no version uses (an ingest that was not finished)"
