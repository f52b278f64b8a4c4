"""Writes the whole log for another tool: JSON lines to verify with, CSV to look at."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal, TextIO

from registry.audit import AuditLog, Event, LogHead
from registry.clock import iso

Format = Literal["csv", "jsonl"]

COLUMNS = ("seq", "ts_us", "time", "kind", "actor", "subject", "body", "prev", "hash",
           "schema_v", "key_id")  # fmt: skip

# A spreadsheet runs a cell that begins so as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Export:
    """What was written: rows, sha256 of the text in hex, and the head they lead to."""

    rows: int
    sha256: str
    head: LogHead


def export(audit: AuditLog, form: Format, out: TextIO) -> Export:
    """Write all events to ``out``.

    JSON lines keep every column exactly, so that the hashes can be recomputed. In CSV, a
    cell that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    head = audit.head()
    writer = _HashingWriter(out)
    lines = _csv_rows if form == "csv" else _json_rows
    rows = lines(audit.events(until=head.seq), writer)
    return Export(rows, writer.digest.hexdigest(), head)


class _HashingWriter:
    """Passes text on and hashes it on the way."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.digest = hashlib.sha256()

    def write(self, text: str) -> int:
        self.digest.update(text.encode())
        return self._out.write(text)


def _json_rows(events: Iterator[Event], writer: _HashingWriter) -> int:
    rows = 0
    for event in events:
        writer.write(json.dumps(_record(event), ensure_ascii=False) + "\n")
        rows += 1
    return rows


def _csv_rows(events: Iterator[Event], writer: _HashingWriter) -> int:
    table = csv.writer(writer, lineterminator="\n")
    table.writerow(COLUMNS)
    rows = 0
    for event in events:
        record = _record(event)
        table.writerow([_cell(record[column]) for column in COLUMNS])
        rows += 1
    return rows


def _record(event: Event) -> dict[str, int | str | None]:
    values = asdict(event)
    return {
        **{column: values[column] for column in ("seq", "ts_us", "kind", "actor", "subject")},
        "time": iso(event.ts_us),
        "body": event.text,
        "prev": event.prev_hex,
        "hash": event.hash_hex,
        "schema_v": event.schema_v,
        "key_id": event.key_id,
    }


def _cell(value: int | str | None) -> int | str:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
