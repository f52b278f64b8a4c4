"""The log: every change to it is refused, and one that got through is named."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import rfc8785

from registry.audit import LogHead
from registry.errors import DatabaseError, InputError
from registry.store import Registry


def append(registry: Registry, count: int = 1) -> None:
    for number in range(count):
        with registry.database.write() as connection:
            registry.audit.append(
                connection, kind="test", actor="someone", subject="x", body={"n": number}
            )


def outside(registry: Registry) -> closing[sqlite3.Connection]:
    """A connection as the sqlite3 shell makes it: without any of our settings."""
    return closing(sqlite3.connect(registry.root / "registry.db", isolation_level=None))


def test_the_hash_is_the_documented_one(registry: Registry) -> None:
    append(registry, 2)
    first, second = registry.audit.events()
    assert first.prev_hex == "00" * 32
    assert second.prev_hex == first.hash_hex
    record = {
        "seq": 2,
        "ts_us": second.ts_us,
        "kind": "test",
        "actor": "someone",
        "subject": "x",
        "body": '{"n":1}',
        "schema_v": 1,
        "key_id": None,
    }
    text = b"\x00" + bytes.fromhex(second.prev_hex) + rfc8785.dumps(record)
    assert second.hash_hex == hashlib.sha256(text).hexdigest()


def test_a_whole_log_verifies(registry: Registry) -> None:
    assert registry.audit.verify().ok
    append(registry, 3)
    result = registry.audit.verify()
    assert (result.ok, result.rows, result.head) == (True, 3, registry.audit.head())


def test_a_transaction_that_fails_leaves_no_event(registry: Registry) -> None:
    append(registry)
    head = registry.audit.head()
    with pytest.raises(RuntimeError), registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor="a", subject="s", body={})
        raise RuntimeError
    assert registry.audit.head() == head


@pytest.mark.parametrize("actor", ["", "  ", "a\nb", "x" * 501])
def test_an_event_needs_someone_who_caused_it(registry: Registry, actor: str) -> None:
    with pytest.raises(InputError), registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor=actor, subject="s", body={})
    assert registry.audit.head() == LogHead(0, "00" * 32)


STATEMENTS = [
    "UPDATE audit_event SET actor = 'nobody' WHERE seq = 2",
    "DELETE FROM audit_event WHERE seq = 3",
    "DELETE FROM audit_event",
    "INSERT OR REPLACE INTO audit_event SELECT 2, ts_us, kind, 'nobody', subject, body, prev, hash,"
    " schema_v, key_id FROM audit_event WHERE seq = 2",
    "INSERT INTO audit_event SELECT 5, ts_us, kind, actor, subject, body, hash, hash,"
    " schema_v, key_id FROM audit_event WHERE seq = 3",
    "INSERT INTO audit_event SELECT 4, ts_us, kind, actor, subject, body, prev, hash,"
    " schema_v, key_id FROM audit_event WHERE seq = 3",
    "INSERT INTO audit_event SELECT 4, ts_us - 1, kind, actor, subject, body, hash, hash,"
    " schema_v, key_id FROM audit_event WHERE seq = 3",
    "INSERT INTO audit_event SELECT NULL, ts_us, kind, actor, subject, body, hash, hash,"
    " schema_v, key_id FROM audit_event WHERE seq = 3",
    "UPDATE OR REPLACE audit_event SET seq = 1 WHERE seq = 3",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_database_refuses_everything_but_the_next_row(
    registry: Registry, statement: str
) -> None:
    append(registry, 3)
    before = list(registry.audit.events())
    with (
        outside(registry) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement)
    with pytest.raises(DatabaseError), registry.database.write() as inside:
        inside.exec_driver_sql(statement)
    assert list(registry.audit.events()) == before
    assert registry.audit.verify().ok


def _rehash(row: sqlite3.Row) -> bytes:
    columns = {key: row[key] for key in row.keys() if key not in ("prev", "hash")}  # noqa: SIM118
    return hashlib.sha256(b"\x00" + row["prev"] + rfc8785.dumps(columns)).digest()


def edit_and_rehash(connection: sqlite3.Connection) -> None:
    """The careful forger: changes row 2 and gives it a hash that fits."""
    connection.execute("UPDATE audit_event SET actor = 'nobody' WHERE seq = 2")
    connection.row_factory = sqlite3.Row
    row = connection.execute("SELECT * FROM audit_event WHERE seq = 2").fetchone()
    connection.execute("UPDATE audit_event SET hash = ? WHERE seq = 2", (_rehash(row),))


def sql(statement: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(statement)


@pytest.mark.parametrize(
    ("forge", "row", "why"),
    [
        (sql("UPDATE audit_event SET actor = 'x' WHERE seq = 2"), 2, "content was changed"),
        (sql("UPDATE audit_event SET ts_us = ts_us - 1 WHERE seq = 2"), 2, "content was changed"),
        (sql("UPDATE audit_event SET body = '{}' WHERE seq = 3"), 3, "content was changed"),
        (sql("UPDATE audit_event SET body = '{' WHERE seq = 3"), 3, "not canonical JSON"),
        (sql("UPDATE audit_event SET hash = zeroblob(32) WHERE seq = 3"), 3, "content was changed"),
        (sql("DELETE FROM audit_event WHERE seq = 2"), 3, "rows 2 to 2 are missing"),
        (sql("DELETE FROM audit_event WHERE seq = 1"), 2, "rows 1 to 1 are missing"),
        (edit_and_rehash, 3, "prev is not the hash of the row before"),
    ],
)
def test_with_the_triggers_dropped_verify_names_the_row(
    registry: Registry, forge: Callable[[sqlite3.Connection], object], row: int, why: str
) -> None:
    append(registry, 4)
    with outside(registry) as connection:
        for trigger in ("append", "no_update", "no_delete"):
            connection.execute(f"DROP TRIGGER audit_event_{trigger}")
        forge(connection)
    result = registry.audit.verify()
    assert (result.ok, result.bad_seq, result.rows) == (False, row, result.head.seq)
    assert result.problems[0].startswith(f"row {row}: ") and why in result.problems[0]


def test_a_dropped_trigger_is_named_even_if_nothing_was_changed(registry: Registry) -> None:
    append(registry)
    with outside(registry) as connection:
        connection.execute("DROP TRIGGER audit_event_no_update")
    result = registry.audit.verify()
    assert result.bad_seq is None
    assert result.problems == ("the trigger audit_event_no_update was removed from the database",)


def test_export_can_be_verified_by_a_stranger(registry: Registry, tmp_path: Path) -> None:
    append(registry, 3)
    path = tmp_path / "log.jsonl"
    with path.open("w", encoding="utf-8", newline="") as out:
        summary = registry.queries.export("jsonl", out)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == summary.sha256
    last = "00" * 32
    for line in path.read_text().splitlines():
        row = json.loads(line)
        prev, last_before, last = row.pop("prev"), last, row.pop("hash")
        del row["time"]
        assert prev == last_before
        text = b"\x00" + bytes.fromhex(prev) + rfc8785.dumps(row)
        assert hashlib.sha256(text).hexdigest() == last
    assert (last, summary.rows) == (summary.head.hash_hex, 3)


def test_csv_does_not_hand_formulas_to_a_spreadsheet(registry: Registry, tmp_path: Path) -> None:
    with registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor="=cmd()", subject="-1", body={})
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as out:
        registry.queries.export("csv", out)
    row = path.read_text().splitlines()[1]
    assert ",'=cmd(),'-1," in row
