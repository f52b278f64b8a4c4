"""Runs migrations on the connection, and in the transaction, that ``migrate`` holds."""

from __future__ import annotations

from alembic import context

from registry.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # SQLite's schema changes are transactional, which alembic doesn't assume.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
