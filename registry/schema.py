"""The tables, as the queries see them. Migrations make them; a test compares the two.

Digests are 32-byte BLOBs, times are integer microseconds since 1970 in UTC, and there
are no floats. Migrations repeat these definitions on purpose: what a released migration
did must not change when this module does.
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0002"
"""The newest migration: what this code reads and writes."""

VERSION_TABLE = "registry_revision"

metadata = MetaData()


audit_event = Table(
    "audit_event",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("ts_us", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("prev", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("schema_v", Integer, nullable=False),
    Column("key_id", Text),
    CheckConstraint("length(prev) = 32 AND length(hash) = 32", name="audit_event_digests"),
    Index("audit_event_kind", "kind", "seq"),
    Index("audit_event_subject", "subject", "seq"),
    Index("audit_event_ts", "ts_us"),
    sqlite_strict=True,
)

blob = Table(
    "blob",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("created_us", Integer, nullable=False),
    Column("damaged_us", Integer),
    CheckConstraint("length(digest) = 32", name="blob_digest"),
    sqlite_strict=True,
)

version = Table(
    "version",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("model", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("registered_us", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    UniqueConstraint("model", "version", name="version_name"),
    CheckConstraint("length(digest) = 32", name="version_digest"),
    sqlite_strict=True,
)

version_file = Table(
    "version_file",
    metadata,
    Column("version_digest", LargeBinary, ForeignKey("version.digest"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("blob_digest", LargeBinary, ForeignKey("blob.digest"), nullable=False),
    Index("version_file_blob", "blob_digest"),
    sqlite_strict=True,
)

alias = Table(
    "alias",
    metadata,
    Column("model", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("digest", LargeBinary, ForeignKey("version.digest"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("moved_us", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    sqlite_strict=True,
)

gate_result = Table(
    "gate_result",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary, ForeignKey("version.digest"), nullable=False),
    Column("gate", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("numbers", Text, nullable=False),
    Column("policy", LargeBinary, nullable=False),
    Column("recorded_us", Integer, nullable=False),
    Column("expires_us", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    CheckConstraint("outcome IN ('pass', 'fail', 'inconclusive')", name="gate_result_outcome"),
    Index("gate_result_version", "digest", "gate", "id"),
    sqlite_strict=True,
)

load = Table(
    "load",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary, ForeignKey("version.digest"), nullable=False),
    Column("service", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("api_pid", Integer, nullable=False),
    Column("process_start_us", Integer, nullable=False),
    Column("identity", Text, nullable=False),
    Column("started_us", Integer, nullable=False),
    Column("verified_us", Integer),
    Column("ready_us", Integer),
    Column("retired_us", Integer),
    Column("ended_us", Integer),
    Column("end_kind", Text),
    Column("end_reason", Text),
    Column("heartbeat_us", Integer, nullable=False),
    Index("load_service", "service", "ready_us"),
    Index("load_version", "digest"),
    sqlite_strict=True,
)

desired_replica = Table(
    "desired_replica",
    metadata,
    Column("service", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("alias", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("weight", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("changed_us", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    UniqueConstraint("host", "port", name="desired_replica_address"),
    CheckConstraint("state IN ('running', 'drained', 'stopped')", name="desired_replica_state"),
    sqlite_strict=True,
)

drift_reference = Table(
    "drift_reference",
    metadata,
    Column("version_digest", LargeBinary, ForeignKey("version.digest"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("recorded_us", Integer, nullable=False),
    sqlite_strict=True,
)
