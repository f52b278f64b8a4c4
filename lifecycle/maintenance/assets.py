"""The record and Dagster's storage as assets: verified, compared, copied, kept small.

Each fails its run when something is wrong, so that the UI and whatever watches runs see it,
and so that the last *good* materialisation stays the one to compare with.
"""

import time

from dagster import (
    AssetExecutionContext,
    AssetKey,
    Config,
    DagsterInstance,
    Failure,
    MaterializeResult,
    MetadataValue,
    asset,
)

from lifecycle.maintenance import retention, storage
from lifecycle.maintenance.backup import back_up
from lifecycle.maintenance.checkpoint import check_log
from lifecycle.models.failures import plain_failures
from lifecycle.models.progress import log_progress
from lifecycle.models.resources import StateFolder
from registry.audit import LogHead
from registry.clock import now_us
from registry.fsck import fsck

GROUP = "maintenance"
_DAY = 86_400.0
_SHOWN = 50


@asset(group_name=GROUP, kinds={"sqlite"})
def audit_checkpoint(context: AssetExecutionContext, state: StateFolder) -> MaterializeResult[None]:
    """The audit log's head, after its whole chain was recomputed.

    Also looks for the head that the last good run saw: a log that has lost its tail is whole
    by itself, and is noticed here.
    """
    started = time.monotonic()
    earlier = _last_head(context.instance, context.asset_key)
    with plain_failures(), state.registry() as registry:
        found = check_log(registry.audit, earlier)
    if found.problems:
        raise _broken(
            "the audit log can't be trusted",
            found.problems,
            "keep the files as they are and compare with a backup; after a deliberate restore, "
            "wipe this asset's materialisations",
        )
    return MaterializeResult(
        metadata={
            "rows": found.rows,
            "head_seq": found.head.seq,
            "head_hash": found.head.hash_hex,
            "compared_with_seq": 0 if earlier is None else earlier.seq,
            "seconds": round(time.monotonic() - started, 3),
        }
    )


@asset(group_name=GROUP, kinds={"sqlite"})
def registry_fsck(context: AssetExecutionContext, state: StateFolder) -> MaterializeResult[None]:
    """Every stored file re-hashed, and every row compared with the log."""
    started = time.monotonic()
    with plain_failures(), state.registry() as registry:
        report = fsck(registry, progress=log_progress(context.log))
    if report.problems:
        raise _broken(
            f"the registry has {len(report.problems)} problems",
            report.problems,
            "restore what is named from a backup, or register the version again",
        )
    return MaterializeResult(
        metadata={
            "stored_files": report.blobs,
            "stored_bytes": report.bytes,
            "events": report.events,
            "head_hash": report.head.hash_hex,
            "notes": MetadataValue.md(_points(report.notes) or "nothing is left over"),
            "seconds": round(time.monotonic() - started, 3),
        }
    )


class BackupConfig(Config):
    """How many copies of the database stay."""

    keep: int = 14


@asset(group_name=GROUP, kinds={"sqlite"})
def registry_backup(config: BackupConfig, state: StateFolder) -> MaterializeResult[None]:
    """A verified copy of the registry's database, in the state folder's ``backup``."""
    started = time.monotonic()
    with plain_failures(), state.registry() as registry:
        made = back_up(
            registry.database, state.paths.backup, now_us=now_us(), keep=max(1, config.keep)
        )
    return MaterializeResult(
        metadata={
            "file": MetadataValue.path(made.file),
            "bytes": made.size,
            "head_seq": made.head.seq,
            "head_hash": made.head.hash_hex,
            "removed": MetadataValue.md(_points(made.removed) or "no older copy"),
            "seconds": round(time.monotonic() - started, 3),
        }
    )


class RetentionConfig(Config):
    """How long Dagster's records stay."""

    success_days: float = retention.Rules.success_days
    other_days: float = retention.Rules.other_days
    live_state_days: float = 14.0
    """For what sensors report without a run."""
    dry_run: bool = False


@asset(group_name=GROUP, kinds={"dagster"})
def dagster_retention(
    context: AssetExecutionContext, config: RetentionConfig
) -> MaterializeResult[None]:
    """Old runs deleted with their event files and captured output.

    Dagster writes one SQLite file of about 130 KB for each run and never deletes one.
    """
    now = time.time()
    instance = context.instance
    rules = retention.Rules(config.success_days, config.other_days)
    known = list(storage.runs(instance))
    # This run has not ended, and is therefore never among them.
    doomed = retention.decide(known, rules, now)
    freed, events = storage.Freed(), 0
    if not config.dry_run:
        for number, run_id in enumerate(doomed, 1):
            freed += storage.delete(instance, run_id)
            if number % 100 == 0:
                context.log.info(f"{number} of {len(doomed)} runs deleted")
        freed += storage.delete_strays(instance, now)
        events = storage.delete_runless_events(instance, now - config.live_state_days * _DAY)
    return MaterializeResult(
        metadata={
            "runs": len(known),
            "deleted_runs": len(doomed),
            "deleted_live_events": events,
            "unlinked_files": freed.files,
            "unlinked_bytes": freed.bytes,
            "dry_run": config.dry_run,
            "seconds": round(time.time() - now, 3),
        }
    )


def _last_head(instance: DagsterInstance, key: AssetKey) -> LogHead | None:
    """The head in the newest materialisation of ``audit_checkpoint``."""
    event = instance.get_latest_materialization_event(key)
    materialization = None if event is None else event.asset_materialization
    if materialization is None:
        return None
    seq = materialization.metadata["head_seq"].value
    head = materialization.metadata["head_hash"].value
    return LogHead(int(str(seq)), str(head))


def _broken(what: str, problems: tuple[str, ...], fix: str) -> Failure:
    return Failure(
        description=f"{what}: {problems[0]}; {fix}",
        metadata={"problems": MetadataValue.md(_points(problems)), "count": len(problems)},
        allow_retries=False,
    )


def _points(lines: tuple[str, ...]) -> str:
    return "\n".join(f"- {line}" for line in lines[:_SHOWN])


MAINTENANCE_ASSETS = [audit_checkpoint, registry_fsck, registry_backup, dagster_retention]
