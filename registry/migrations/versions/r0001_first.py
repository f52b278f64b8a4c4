"""The first schema: audit log, blobs, versions, aliases, gate results, loads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _not_null(name: str, kind: type[sa.Text] | type[sa.Integer]) -> sa.Column[object]:
    return sa.Column(name, kind(), nullable=False)


def upgrade() -> None:
    """Make all tables and the triggers that make the audit log append-only."""
    _audit()
    _contents()
    _aliases()
    _gates()
    _loads()


def _audit() -> None:
    op.create_table(
        "audit_event",
        sa.Column("seq", sa.Integer, primary_key=True),
        _not_null("ts_us", sa.Integer),
        _not_null("kind", sa.Text),
        _not_null("actor", sa.Text),
        _not_null("subject", sa.Text),
        _not_null("body", sa.Text),
        sa.Column("prev", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        _not_null("schema_v", sa.Integer),
        sa.Column("key_id", sa.Text),
        sa.CheckConstraint("length(prev) = 32 AND length(hash) = 32", name="audit_event_digests"),
        sqlite_strict=True,
    )
    op.create_index("audit_event_kind", "audit_event", ["kind", "seq"])
    op.create_index("audit_event_subject", "audit_event", ["subject", "seq"])
    op.create_index("audit_event_ts", "audit_event", ["ts_us"])
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_event_no_{action.lower()} BEFORE {action} ON audit_event "
            f"BEGIN SELECT RAISE(ABORT, 'audit_event is append-only: {action} refused'); END"
        )
    # Also stops INSERT OR REPLACE, which deletes without firing a delete trigger
    # unless the connection asked for recursive triggers.
    op.execute(
        """
        CREATE TRIGGER audit_event_append BEFORE INSERT ON audit_event BEGIN
          SELECT RAISE(ABORT, 'audit_event is append-only: seq is not the next one')
            WHERE NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM audit_event);
          SELECT RAISE(ABORT, 'audit_event is append-only: prev is not the last hash')
            WHERE NEW.prev IS NOT coalesce(
              (SELECT hash FROM audit_event ORDER BY seq DESC LIMIT 1), zeroblob(32));
          SELECT RAISE(ABORT, 'audit_event is append-only: time runs backwards')
            WHERE NEW.ts_us < (SELECT ts_us FROM audit_event ORDER BY seq DESC LIMIT 1);
        END
        """
    )


def _contents() -> None:
    op.create_table(
        "blob",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        _not_null("size", sa.Integer),
        _not_null("created_us", sa.Integer),
        sa.Column("damaged_us", sa.Integer),
        sa.CheckConstraint("length(digest) = 32", name="blob_digest"),
        sqlite_strict=True,
    )
    op.create_table(
        "version",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        _not_null("model", sa.Text),
        _not_null("version", sa.Text),
        _not_null("manifest", sa.Text),
        _not_null("registered_us", sa.Integer),
        _not_null("actor", sa.Text),
        _not_null("source", sa.Text),
        sa.UniqueConstraint("model", "version", name="version_name"),
        sa.CheckConstraint("length(digest) = 32", name="version_digest"),
        sqlite_strict=True,
    )
    op.create_table(
        "version_file",
        sa.Column(
            "version_digest", sa.LargeBinary, sa.ForeignKey("version.digest"), primary_key=True
        ),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("blob_digest", sa.LargeBinary, sa.ForeignKey("blob.digest"), nullable=False),
        sqlite_strict=True,
    )
    op.create_index("version_file_blob", "version_file", ["blob_digest"])


def _aliases() -> None:
    op.create_table(
        "alias",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("alias", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, sa.ForeignKey("version.digest"), nullable=False),
        _not_null("revision", sa.Integer),
        _not_null("moved_us", sa.Integer),
        _not_null("actor", sa.Text),
        sqlite_strict=True,
    )


def _gates() -> None:
    op.create_table(
        "gate_result",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary, sa.ForeignKey("version.digest"), nullable=False),
        _not_null("gate", sa.Text),
        _not_null("outcome", sa.Text),
        _not_null("numbers", sa.Text),
        sa.Column("policy", sa.LargeBinary, nullable=False),
        _not_null("recorded_us", sa.Integer),
        _not_null("expires_us", sa.Integer),
        _not_null("actor", sa.Text),
        _not_null("run_id", sa.Text),
        sa.CheckConstraint(
            "outcome IN ('pass', 'fail', 'inconclusive')", name="gate_result_outcome"
        ),
        sqlite_strict=True,
    )
    op.create_index("gate_result_version", "gate_result", ["digest", "gate", "id"])


def _loads() -> None:
    op.create_table(
        "load",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary, sa.ForeignKey("version.digest"), nullable=False),
        _not_null("service", sa.Text),
        _not_null("model", sa.Text),
        _not_null("host", sa.Text),
        _not_null("boot_id", sa.Text),
        _not_null("pid", sa.Integer),
        _not_null("api_pid", sa.Integer),
        _not_null("process_start_us", sa.Integer),
        _not_null("identity", sa.Text),
        _not_null("started_us", sa.Integer),
        sa.Column("verified_us", sa.Integer),
        sa.Column("ready_us", sa.Integer),
        sa.Column("retired_us", sa.Integer),
        sa.Column("ended_us", sa.Integer),
        sa.Column("end_kind", sa.Text),
        sa.Column("end_reason", sa.Text),
        _not_null("heartbeat_us", sa.Integer),
        sqlite_strict=True,
    )
    op.create_index("load_service", "load", ["service", "ready_us"])
    op.create_index("load_version", "load", ["digest"])
