"""Runs over the model assets. One process each: operations must start fast."""

from dagster import AssetSelection, define_asset_job, in_process_executor

from lifecycle.models.assets import (
    model_artifact,
    model_manifest,
    promoted_version,
    registered_version,
)
from lifecycle.models.deployment import deployed_version

_HOUR = 3600

intake_model = define_asset_job(
    "intake_model",
    selection=AssetSelection.assets(
        model_artifact, model_manifest, registered_version, promoted_version
    ),
    description="Take a version in from the drop folder: hash, register, gate, promote.",
    executor_def=in_process_executor,
    run_tags={"dagster/max_runtime": 2 * _HOUR, "ironworks/kind": "intake"},
)

reload_model = define_asset_job(
    "reload_model",
    selection=AssetSelection.assets(deployed_version),
    description="Make the replica serve the version that production names.",
    executor_def=in_process_executor,
    run_tags={"dagster/max_runtime": _HOUR, "ironworks/kind": "reload"},
)
