"""The SQLite engine with the discipline that keeps records: locks, durability, revision.

SQLAlchemy's default BEGIN on SQLite is deferred, and a deferred transaction that reads
and then writes loses races ("database is locked", whatever the timeout). So writers say
``BEGIN IMMEDIATE`` and wait for their turn; readers say ``BEGIN`` and see one snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from registry.errors import DatabaseError
from registry.filesystem import file_system, is_network
from registry.schema import REVISION, VERSION_TABLE

MIGRATE_COMMAND = "ironworks registry migrate"
BUSY_MS = 30_000

# Up to 3.51.2 a checkpoint that restarts the WAL can lose a commit (SQLite's WAL-reset bug).
WAL_SAFE_VERSION = (3, 51, 3)

_WRITER = "ironworks_writer"


class Database:
    """One SQLite file. Thread-safe; opening reads nothing but the revision.

    Args:
        path: the database file.

    Raises:
        DatabaseError: the file is on a network file system.
    """

    def __init__(self, path: Path) -> None:
        kind = file_system(path.parent)
        if is_network(kind):
            raise DatabaseError(
                f"SQLite's locks are not safe on a network file system ({kind})",
                where=str(path),
                fix="set IRONWORKS_STATE to a folder on a local disk",
            )
        self.path = path
        self._engine = create_engine(
            URL.create("sqlite+pysqlite", database=str(path)),
            connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False},
        )
        event.listen(self._engine, "connect", _configure)
        event.listen(self._engine, "begin", _begin)
        self._writer = self._engine.execution_options(**{_WRITER: True})

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads one consistent snapshot.

        Raises:
            DatabaseError: SQLite failed; the text says how.
        """
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that holds the write lock from its start to its commit.

        Raises:
            DatabaseError: SQLite failed, for example because the disk is full; nothing
                of the transaction is kept.
        """
        with self._translated(), self._writer.begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """Return the revision of the schema in the file, ``None`` if it has none yet."""
        with self.read() as connection:
            return read_revision(connection)

    def check_revision(self) -> None:
        """Refuse a database that this code does not know.

        Raises:
            DatabaseError: the schema is older (names the command) or newer than the code.
        """
        found = self.revision()
        if found == REVISION:
            return
        if found is not None and found > REVISION:
            raise DatabaseError(
                f"the database has schema {found}, newer than this program's {REVISION}",
                where=str(self.path),
                fix="use the ironworks version that migrated it, or a newer one",
            )
        raise DatabaseError(
            f"the database has schema {found or 'none'}, this program needs {REVISION}",
            where=str(self.path),
            fix=f"run: {MIGRATE_COMMAND}",
        )

    def backup(self, target: Path) -> None:
        """Copy the database to the new file ``target`` while others read and write.

        Raises:
            DatabaseError: ``target`` exists, or can't be written.
        """
        if target.exists():
            raise DatabaseError("the backup file exists", where=str(target), fix="name a new one")
        try:
            with sqlite3.connect(self.path, timeout=BUSY_MS / 1000) as source:
                copy = sqlite3.connect(target)
                try:
                    source.backup(copy)
                finally:
                    copy.close()
            source.close()
        except sqlite3.Error as error:
            raise DatabaseError(f"the backup failed: {error}", where=str(target)) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeoutError) as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> DatabaseError:
        cause = getattr(error, "orig", None) or error
        name = getattr(cause, "sqlite_errorname", "")
        fixes = {
            "SQLITE_FULL": "free space on its disk, then run the same command again",
            "SQLITE_BUSY": "another process holds the database; try again",
            "SQLITE_READONLY": "make the file and its folder writable for this user",
            "SQLITE_CANTOPEN": "check the folder and its permissions",
            "SQLITE_NOTADB": "this is not a registry database; restore a backup",
            "SQLITE_CORRUPT": "stop all writers and restore a backup",
            "SQLITE_IOERR": "check the disk and its free space",
        }
        fix = next((text for prefix, text in fixes.items() if name.startswith(prefix)), "")
        return DatabaseError(f"the registry database: {cause}", where=str(self.path), fix=fix)


def read_revision(connection: Connection) -> str | None:
    """Return the schema revision that the database says it has."""
    known = connection.exec_driver_sql(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (VERSION_TABLE,)
    ).first()
    if known is None:
        return None
    row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").first()
    return str(row[0]) if row else None


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # the listener below decides how to begin
    safe = sqlite3.sqlite_version_info >= WAL_SAFE_VERSION
    for pragma in (
        f"busy_timeout = {BUSY_MS}",
        f"journal_mode = {'WAL' if safe else 'DELETE'}",
        "synchronous = FULL",
        "foreign_keys = ON",
        "recursive_triggers = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    writer = connection.get_execution_options().get(_WRITER)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")
