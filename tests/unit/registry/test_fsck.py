from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from registry.fsck import fsck
from registry.loads import LoadIdentity
from registry.store import Registry, Version
from tests.support.checkpoints import flip_byte
from tests.support.registered import promote

Add = Callable[[str], Version]


@pytest.fixture
def filled(registry: Registry, add: Add, identity: LoadIdentity) -> Registry:
    """Two versions, alias moves, gates, one load that failed and one that is ready."""
    one, two = add("tiny@v1"), add("tiny@v2")
    promote(registry, "tiny@v1")
    promote(registry, "tiny@v2")
    registry.rollback("tiny", alias="production", actor="a", reason="r")
    failed = registry.loads.started(one.digest, identity).load_id
    registry.loads.failed(failed, phase="read", reason="gone")
    ready = registry.loads.started(two.digest, identity).load_id
    files = {entry.path: entry.sha256 for entry in two.manifest.files}
    registry.loads.verified(ready, files=files, seconds={})
    registry.loads.ready(ready, seconds={})
    return registry


def test_a_sound_registry_has_no_problems(filled: Registry) -> None:
    report = fsck(filled)
    assert (report.problems, report.notes) == ((), ())
    assert report.blobs == 8  # two shards each, four files shared
    assert report.head == filled.audit.head()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE alias SET digest ="
            " (SELECT digest FROM version WHERE version.digest <> alias.digest)",
            "aliases: tiny:production",
        ),
        ("DELETE FROM alias", "aliases: tiny:production is in the log but not in the table"),
        ("UPDATE gate_result SET outcome = 'fail' WHERE id = 3", "gates: 3"),
        ("UPDATE load SET ready_us = ready_us - 1 WHERE id = 2", "loads: 2"),
        ("UPDATE load SET ended_us = NULL WHERE id = 1", "loads: 1"),
        ("UPDATE version SET version = 'v9' WHERE version = 'v2'", "versions: "),
        ("UPDATE version SET manifest = '{}' WHERE version = 'v2'", "not in the log"),
        (
            "INSERT INTO alias SELECT model, 'staging', digest, 1, 1, 'x' FROM version LIMIT 1",
            "tiny:staging is in the table but not in the log",
        ),
    ],
)
def test_a_row_changed_behind_the_logs_back_is_named(
    filled: Registry, statement: str, says: str
) -> None:
    with closing(sqlite3.connect(filled.root / "registry.db")) as connection, connection:
        connection.execute(statement)
    assert any(says in problem for problem in fsck(filled).problems)


def test_a_damaged_file_is_named_by_its_version_and_path(filled: Registry) -> None:
    (shard,) = [e for e in filled.version("tiny@v1").manifest.files if "00001" in e.path]
    flip_byte(filled.root / "blobs" / "sha256" / shard.sha256[:2] / shard.sha256)
    (problem,) = fsck(filled).problems
    assert problem.startswith(f"tiny@v1/{shard.path}: stored bytes are sha256")


def test_a_broken_log_is_reported_with_its_row(filled: Registry) -> None:
    with closing(sqlite3.connect(filled.root / "registry.db")) as connection, connection:
        connection.execute("DROP TRIGGER audit_event_no_update")
        connection.execute("UPDATE audit_event SET actor = 'nobody' WHERE seq = 3")
    assert fsck(filled).problems[0].startswith("audit log: row 3: its content was changed")


def test_what_a_crash_leaves_is_a_note_and_no_problem(filled: Registry) -> None:
    (filled.root / "blobs" / "incoming" / "half").write_bytes(b"x")
    stray = filled.root / "blobs" / "sha256" / "ab" / ("ab" * 32)
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x")
    report = fsck(filled)
    assert report.problems == ()
    assert len(report.notes) == 2
