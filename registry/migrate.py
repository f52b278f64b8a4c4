"""Brings a database to this program's schema: all of it, or nothing."""

from __future__ import annotations

from pathlib import Path

from registry.database import Database, read_revision
from registry.errors import DatabaseError
from registry.schema import REVISION


def migrate(database: Database) -> Path | None:
    """Make the newest schema in ``database``, inside one write transaction.

    The revision is read again under the lock, so that two processes that start at once
    migrate once. A database that holds data is backed up beside itself first.

    Returns:
        The backup, or ``None`` when there was nothing to back up or to do.

    Raises:
        DatabaseError: the database is newer than this program, or can't be written.
    """
    found = database.revision()
    if found == REVISION:
        return None
    backup = None
    if found is not None:
        if found > REVISION:
            database.check_revision()
        backup = database.path.with_name(f"{database.path.name}.schema-{found}.backup")
        if not backup.exists():
            database.backup(backup)
    with database.write() as connection:
        if read_revision(connection) != REVISION:
            # Imported here: opening an up-to-date registry must stay cheap.
            from alembic import command
            from alembic.config import Config

            config = Config()
            config.set_main_option("script_location", "registry:migrations")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if read_revision(connection) != REVISION:
            raise DatabaseError("the migration did not reach its revision", where=REVISION)
    return backup
