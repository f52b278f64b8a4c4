"""The scheduled jobs on a real registry: what they say when all is well, and when it is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from registry.paths import StatePaths
from registry.store import Registry
from tests.support.checkpoints import flip_byte
from tests.support.plain_checkpoint import write_checkpoint
from tests.support.plant import Plant, failure_of, metadata_of
from tests.support.ports import free_port
from tests.support.registered import add_version, promote


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    """A registry with two versions, one of them promoted."""
    paths = StatePaths(tmp_path / "state").create()
    with Registry.open(paths.registry) as registry:
        for fill, name in ((2, "tiny@v1"), (3, "tiny@v2")):
            add_version(registry, write_checkpoint(tmp_path / name, fill=fill), name)
        promote(registry, "tiny@v1")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(paths, free_port(), instance)


def run(plant: Plant, job: str) -> dg.ExecuteInProcessResult:
    return plant.defs.resolve_job_def(job).execute_in_process(
        instance=plant.instance, raise_on_error=False
    )


def edit(plant: Plant, *statements: str) -> None:
    """Change the database as an intruder would, who has removed the triggers."""
    with closing(sqlite3.connect(plant.paths.registry / "registry.db")) as connection, connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)


def test_a_whole_log_is_shown_with_its_head(plant: Plant) -> None:
    done = metadata_of(run(plant, "verify_audit"), "audit_checkpoint")
    with plant.registry() as registry:
        head = registry.audit.head()
    assert (done["head_seq"], done["head_hash"]) == (head.seq, head.hash_hex)


def test_a_tail_that_was_cut_off_is_noticed_by_the_next_check(plant: Plant) -> None:
    seen = metadata_of(run(plant, "verify_audit"), "audit_checkpoint")["head_seq"]
    assert isinstance(seen, int)
    edit(plant, f"DELETE FROM audit_event WHERE seq = {seen}")
    with plant.registry() as registry:
        assert registry.audit.verify().ok  # by itself, what is left looks whole
    for _ in range(2):  # and it stays noticed: a failed check is nothing to compare with
        failed = run(plant, "verify_audit")
        assert f"an earlier check saw row {seen}" in failure_of(failed, "audit_checkpoint")


def test_a_row_that_was_changed_fails_the_check(plant: Plant) -> None:
    edit(plant, "UPDATE audit_event SET actor = 'nobody' WHERE seq = 2")
    failed = run(plant, "verify_audit")
    assert "row 2: its content was changed" in failure_of(failed, "audit_checkpoint")


def test_damage_fails_the_comparison_and_the_copy_is_made_all_the_same(plant: Plant) -> None:
    with plant.registry() as registry:
        entry = registry.version("tiny@v2").manifest.files[0]
    flip_byte(plant.paths.registry / "blobs" / "sha256" / entry.sha256[:2] / entry.sha256)
    done = run(plant, "check_registry")
    assert not done.success
    assert entry.path in failure_of(done, "registry_fsck")
    assert Path(str(metadata_of(done, "registry_backup")["file"])).is_file()


def test_a_backup_opens_as_a_registry_with_the_same_head(plant: Plant, tmp_path: Path) -> None:
    made = metadata_of(run(plant, "check_registry"), "registry_backup")
    restored = tmp_path / "restored"
    restored.mkdir()
    (restored / "registry.db").write_bytes(Path(str(made["file"])).read_bytes())
    with Registry.open(restored, create=False) as registry:
        assert registry.audit.head().hash_hex == made["head_hash"]
        assert registry.alias("tiny", "production") is not None


def test_old_copies_make_room(plant: Plant) -> None:
    for day in range(20):
        plant.paths.backup.mkdir(exist_ok=True)
        (plant.paths.backup / f"registry-202001{day + 1:02}T000000Z.db").touch()
    run(plant, "check_registry")
    copies = sorted(path.name for path in plant.paths.backup.iterdir())
    assert len(copies) == 14
    assert copies[0] == "registry-20200108T000000Z.db"
