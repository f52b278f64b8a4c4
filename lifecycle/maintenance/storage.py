"""Dagster's run records on disk: what there is, and how to delete it with all its files.

``DagsterInstance.delete_run`` deletes rows. It leaves the run's own SQLite file (about
130 KB, the event log keeps one for each run) and its captured output: those are unlinked here.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import AssetEventTagsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage

from lifecycle.maintenance.retention import RunFacts

_PAGE = 500
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
# A run that is being created has files before it has a row.
_STRAY_SECONDS = 3600.0


@dataclass(frozen=True)
class Freed:
    """Files and bytes that were unlinked."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.files + other.files, self.bytes + other.bytes)


def runs(instance: DagsterInstance) -> Iterator[RunFacts]:
    """Every run of the instance, newest first."""
    cursor: str | None = None
    while True:
        records = instance.get_run_records(limit=_PAGE, cursor=cursor)
        for record in records:
            run = record.dagster_run
            ended = record.end_time or record.update_timestamp.timestamp()
            selection = frozenset(key.to_user_string() for key in run.asset_selection or ())
            yield RunFacts(
                run_id=run.run_id,
                subject=(run.job_name, run.tags.get("dagster/partition", ""), selection),
                succeeded=run.status == DagsterRunStatus.SUCCESS,
                ended=ended if run.status in _ENDED else None,
            )
        if len(records) < _PAGE:
            return
        cursor = records[-1].dagster_run.run_id


def delete(instance: DagsterInstance, run_id: str) -> Freed:
    """Delete one run that has ended: its rows, then its files; safe to call again."""
    instance.delete_run(run_id)
    return _unlink(instance, run_id)


def delete_strays(instance: DagsterInstance, now: float) -> Freed:
    """Unlink the files of runs that no longer exist: deleted in the UI, or by a killed run."""
    freed = Freed()
    for name, modified in _run_files(instance):
        if modified < now - _STRAY_SECONDS and not instance.has_run(name):
            freed += _unlink(instance, name)
    return freed


def delete_runless_events(instance: DagsterInstance, before: float) -> int:
    """Delete what sensors reported without a run (the fleet's live state) before a time.

    Dagster itself keeps these rows for ever. The newest of each kind and asset stays.

    Args:
        instance: the instance.
        before: seconds since 1970.

    Returns:
        How many events went.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return 0
    events = SqlEventLogStorageTable.c
    # Dagster writes UTC without a zone.
    moment = datetime.fromtimestamp(before, UTC).replace(tzinfo=None)
    runless = events.run_id == RUNLESS_RUN_ID
    newest = (
        sa.select(sa.func.max(events.id))
        .where(runless)
        .group_by(events.asset_key, events.dagster_event_type)
    )
    old = sa.and_(runless, events.timestamp < moment, events.id.not_in(newest))
    tags = AssetEventTagsTable
    deleted = 0
    # Each event has a row in the index and one in the file of "the run without an id".
    for connect in (storage.index_connection, lambda: storage.run_connection(RUNLESS_RUN_ID)):
        with connect() as connection:
            connection.execute(
                tags.delete().where(tags.c.event_id.in_(sa.select(events.id).where(old)))
            )
            deleted = connection.execute(SqlEventLogStorageTable.delete().where(old)).rowcount
    return deleted


def _run_files(instance: DagsterInstance) -> Iterator[tuple[str, float]]:
    """(run id, time of the last change) of each run that has files."""
    folders = [path for path in _output(instance).glob("*") if path.is_dir()]
    shards = _shards(instance)
    files = [] if shards is None else list(shards.glob("*.db"))
    for path in folders + files:
        if _is_run_id(path.stem):
            try:
                yield path.stem, path.stat().st_mtime
            except FileNotFoundError:
                continue


def _unlink(instance: DagsterInstance, run_id: str) -> Freed:
    freed = Freed()
    shards = _shards(instance)
    if shards is not None:
        for path in shards.glob(f"{run_id}.db*"):
            freed += Freed(1, path.stat().st_size)
            path.unlink()
    output = _output(instance) / run_id
    if output.is_dir():
        sizes = [path.stat().st_size for path in output.rglob("*") if path.is_file()]
        shutil.rmtree(output)
        freed += Freed(len(sizes), sum(sizes))
    return freed


def _shards(instance: DagsterInstance) -> Path | None:
    """The folder of the runs' SQLite files, None where another database keeps the events."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return None
    return Path(storage.path_for_shard("x")).parent


def _output(instance: DagsterInstance) -> Path:
    return Path(instance.storage_directory())


def _is_run_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
