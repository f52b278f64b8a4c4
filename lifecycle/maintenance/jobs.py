"""Runs over the maintenance assets; one at a time, so that they never crowd out a recovery."""

from dagster import AssetsDefinition, define_asset_job, in_process_executor
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lifecycle.maintenance.assets import (
    audit_checkpoint,
    dagster_retention,
    registry_backup,
    registry_fsck,
)

_HOUR = 3600


def _job(
    name: str, assets: list[AssetsDefinition], description: str, hours: int
) -> UnresolvedAssetJobDefinition:
    return define_asset_job(
        name,
        selection=assets,
        description=description,
        executor_def=in_process_executor,
        run_tags={"dagster/max_runtime": hours * _HOUR, "ironworks/kind": "maintenance"},
    )


verify_audit = _job("verify_audit", [audit_checkpoint], "Recompute the audit log's chain.", 1)

check_registry = _job(
    "check_registry", [registry_fsck, registry_backup], "Compare all that is stored, copy it.", 6
)

clean_dagster = _job("clean_dagster", [dagster_retention], "Delete old runs and their files.", 2)

MAINTENANCE_JOBS = [verify_audit, check_registry, clean_dagster]
