"""What should run, and what a version's traffic looked like when it was promoted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _not_null(name: str, kind: type[sa.Text] | type[sa.Integer]) -> sa.Column[object]:
    return sa.Column(name, kind(), nullable=False)


def upgrade() -> None:
    """Make the tables of the control loops."""
    op.create_table(
        "desired_replica",
        sa.Column("service", sa.Text, primary_key=True),
        _not_null("host", sa.Text),
        _not_null("port", sa.Integer),
        _not_null("model", sa.Text),
        _not_null("alias", sa.Text),
        _not_null("device", sa.Text),
        _not_null("weight", sa.Integer),
        _not_null("state", sa.Text),
        _not_null("changed_us", sa.Integer),
        _not_null("actor", sa.Text),
        sa.UniqueConstraint("host", "port", name="desired_replica_address"),
        sa.CheckConstraint(
            "state IN ('running', 'drained', 'stopped')", name="desired_replica_state"
        ),
        sqlite_strict=True,
    )
    op.create_table(
        "drift_reference",
        sa.Column(
            "version_digest", sa.LargeBinary, sa.ForeignKey("version.digest"), primary_key=True
        ),
        sa.Column("kind", sa.Text, primary_key=True),
        _not_null("body", sa.Text),
        _not_null("recorded_us", sa.Integer),
        sqlite_strict=True,
    )
