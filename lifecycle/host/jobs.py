"""Runs over the host's assets."""

from dagster import AssetSelection, define_asset_job, in_process_executor

from lifecycle.host.assets import host_report

_MINUTE = 60

verify_host = define_asset_job(
    "verify_host",
    selection=AssetSelection.assets(host_report),
    description="Look at the machine: driver, libraries, kernel, services, disks.",
    executor_def=in_process_executor,
    run_tags={"dagster/max_runtime": 15 * _MINUTE, "ironworks/kind": "verify"},
)
