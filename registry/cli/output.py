"""Prints answers: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from registry.audit import Event, LogHead
from registry.clock import iso
from registry.versions import Version

_MICROSECONDS = "_us"


def print_json(value: Any) -> None:
    """Print dataclasses, lists and mappings as indented JSON.

    Every field ``x_us`` (microseconds since 1970) is repeated as ``x`` in ISO 8601.
    """
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Turn an answer into what ``json`` can write."""
    if isinstance(value, Version):
        return {"name": value.name, **_fields(value)}
    if isinstance(value, Event):
        columns = _fields(value)
        del columns["text"]
        return {**columns, "body": value.body}
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        result[field.name] = plain(item)
        if field.name.endswith(_MICROSECONDS) and isinstance(item, int):
            result[field.name.removesuffix(_MICROSECONDS)] = iso(item)
    return result


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table. Cells are plain text: markup in names or reasons is not obeyed."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    if console.is_terminal:
        console.print(table)
        return
    console.width = 1_000  # never wrap or cut what a program may read
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())


def print_head(head: LogHead) -> None:
    """Print the log head that an answer was read at."""
    print(f"log head: {head.seq} {head.hash_hex}")


def moment(us: int | None) -> str:
    """Return a time for a table; a dash for none."""
    return "-" if us is None else iso(us)


def event_rows(events: Iterable[Event]) -> list[tuple[str, str, str, str, str]]:
    """Return (row, time, event, actor, details) for a table of events."""
    rows = []
    for event in events:
        details = ", ".join(f"{key}={_brief(item)}" for key, item in event.body.items() if item)
        rows.append((str(event.seq), iso(event.ts_us), event.kind, event.actor, details))
    return rows


def _brief(value: object) -> str:
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 60 else f"({len(value)} items)"
    text = str(value)
    is_digest = len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)
    return text[:12] if is_digest else text
