"""The database file: its discipline, its schema, and which ones are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from registry.audit import AuditLog
from registry.database import WAL_SAFE_VERSION, Database
from registry.errors import DatabaseError
from registry.filesystem import file_system, is_network
from registry.migrate import migrate
from registry.schema import REVISION, VERSION_TABLE, metadata
from registry.store import Registry


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "registry.db")
    migrate(opened)
    yield opened
    opened.close()


def set_revision(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (revision,))


def test_connections_are_set_up_for_durability(database: Database) -> None:
    with database.read() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in (
                "foreign_keys",
                "recursive_triggers",
                "trusted_schema",
                "synchronous",
                "busy_timeout",
                "mmap_size",
                "journal_mode",
            )
        }
    wal = sqlite3.sqlite_version_info >= WAL_SAFE_VERSION
    assert found == {
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "trusted_schema": 0,
        "synchronous": 2,
        "busy_timeout": 30_000,
        "mmap_size": 0,
        "journal_mode": "wal" if wal else "delete",
    }


def test_migrations_make_the_schema_that_the_queries_use(
    database: Database, tmp_path: Path
) -> None:
    def columns(path: Path) -> dict[str, list[tuple[str, str, bool, int]]]:
        inspector = inspect(create_engine(f"sqlite:///{path}"))
        return {
            table: [
                (c["name"], str(c["type"]), bool(c["nullable"]), int(c["primary_key"]))
                for c in inspector.get_columns(table)
            ]
            for table in inspector.get_table_names()
            if table != VERSION_TABLE
        }

    def indexes(path: Path) -> set[tuple[str, tuple[str | None, ...]]]:
        inspector = inspect(create_engine(f"sqlite:///{path}"))
        return {
            (str(index["name"]), tuple(index["column_names"]))
            for table in metadata.tables
            for index in inspector.get_indexes(table)
        }

    declared = tmp_path / "declared.db"
    metadata.create_all(create_engine(f"sqlite:///{declared}"))
    assert columns(database.path) == columns(declared)
    assert indexes(database.path) == indexes(declared)


def test_every_table_is_strict(database: Database) -> None:
    with database.read() as connection:
        rows = connection.exec_driver_sql("PRAGMA table_list").mappings().all()
    strict = {row["name"]: row["strict"] for row in rows}
    assert {name: strict[name] for name in metadata.tables} == dict.fromkeys(metadata.tables, 1)


def test_the_newest_migration_is_the_one_the_code_names(database: Database) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "registry:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]
    assert database.revision() == REVISION


def test_migrating_again_does_nothing(database: Database) -> None:
    before = database.path.read_bytes()
    assert migrate(database) is None
    assert database.path.read_bytes() == before


@pytest.mark.parametrize(
    ("revision", "says"),
    [("0000", "run: ironworks registry migrate"), ("9999", "newer than this program's")],
)
def test_a_database_of_another_schema_is_refused(tmp_path: Path, revision: str, says: str) -> None:
    Registry.open(tmp_path).close()
    set_revision(tmp_path / "registry.db", revision)
    with pytest.raises(DatabaseError, match=says):
        Registry.open(tmp_path)


def test_an_older_database_is_backed_up_before_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    database = Database(path)
    migrate(database)
    set_revision(path, "0000")  # no migration starts from there: the upgrade must fail
    with pytest.raises(Exception, match="0000"):
        migrate(database)
    backup = tmp_path / "registry.db.schema-0000.backup"
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT count(*) FROM version").fetchone() == (0,)
    assert database.revision() == "0000"
    database.close()


def test_a_registry_that_does_not_exist_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="ironworks registry init"):
        Registry.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_an_empty_file_left_by_a_crash_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "registry.db").touch()
    with Registry.open(tmp_path) as registry:
        assert registry.versions() == []


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.db").write_bytes(b"not a database" * 100)
    with pytest.raises(DatabaseError, match="restore a backup"):
        Registry.open(tmp_path)


def test_readers_do_not_see_half_a_transaction(registry: Registry) -> None:
    with registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor="a", subject="s", body={})
        with registry.database.read() as other:
            assert registry.audit.head(other).seq == 0
    assert registry.audit.head().seq == 1


def test_threads_share_one_registry(registry: Registry) -> None:
    def append(number: int) -> int:
        with registry.database.write() as connection:
            actor = f"thread-{number % 8}"
            registry.audit.append(connection, kind="k", actor=actor, subject="s", body={})
        return registry.audit.head().seq

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(append, range(40)))
    assert max(seen) == 40
    assert registry.audit.verify().rows == 40


def test_a_full_database_says_so_and_loses_nothing(registry: Registry) -> None:
    with registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor="a", subject="s", body={})
    with (
        pytest.raises(DatabaseError, match=r"full.*free space") as caught,
        registry.database.write() as connection,
    ):
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        big = {"text": "x" * 1_000_000}
        registry.audit.append(connection, kind="k", actor="a", subject="s", body=big)
    assert caught.value.where.endswith("registry.db")
    assert registry.audit.verify().rows == 1


def test_a_backup_is_a_working_registry(registry: Registry, tmp_path: Path) -> None:
    with registry.database.write() as connection:
        registry.audit.append(connection, kind="k", actor="a", subject="s", body={})
    copy = tmp_path / "copy" / "registry.db"
    copy.parent.mkdir()
    registry.database.backup(copy)
    with Registry.open(copy.parent, create=False) as restored:
        assert restored.audit.verify().head == registry.audit.head()
    with pytest.raises(DatabaseError, match="exists"):
        registry.database.backup(copy)


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /srv rw - nfs4 server:/export rw
31 30 8:1 / /srv/local\\040disk rw - xfs /dev/sdb rw
32 22 0:41 / /home/me/remote rw - fuse.sshfs host:/ rw
33 22 0:42 / /mnt/smb rw master:1 - cifs //host/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x", "ext4", False),
        ("/srv/registry", "nfs4", True),
        ("/srv/local disk/registry", "xfs", False),
        ("/srvx", "ext4", False),
        ("/home/me/remote/a", "fuse.sshfs", True),
        ("/mnt/smb", "cifs", True),
    ],
)
def test_network_file_systems_are_recognised(path: str, kind: str, network: bool) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    assert is_network(kind) is network


def test_a_registry_of_the_first_release_is_migrated_with_its_rows(tmp_path: Path) -> None:
    from alembic import command
    from alembic.config import Config

    database = Database(tmp_path / "registry.db")
    config = Config()
    config.set_main_option("script_location", "registry:migrations")
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with database.write() as connection:
        AuditLog(database).append(connection, kind="test", actor="me", subject="x", body={})
    backup = migrate(database)
    database.close()
    assert backup is not None and backup.exists()
    with Registry.open(tmp_path) as registry:
        assert registry.fleet.desired() == []
        assert registry.audit.verify().rows == 1
