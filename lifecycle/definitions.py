"""The one Dagster entry point of Ironworks: everything the UI shows is listed here."""

from typing import Any

from dagster import Definitions, mem_io_manager

from lifecycle.drift.assets import DRIFT_ASSETS, DRIFT_JOBS
from lifecycle.fleet.assets import autoscale_simulation, serving_fleet
from lifecycle.fleet.jobs import drain_host, recover_replica, scale_replicas
from lifecycle.fleet.sensors import gpu_metrics, health_probes
from lifecycle.host.assets import host_report
from lifecycle.host.jobs import verify_host
from lifecycle.host.recovery.job import recover_host
from lifecycle.host.resources import HostResource
from lifecycle.maintenance.assets import MAINTENANCE_ASSETS
from lifecycle.maintenance.jobs import MAINTENANCE_JOBS
from lifecycle.models.assets import (
    model_artifact,
    model_manifest,
    promoted_version,
    registered_version,
)
from lifecycle.models.checks import GATE_CHECKS
from lifecycle.models.deployment import deployed_version
from lifecycle.models.jobs import intake_model, reload_model
from lifecycle.models.resources import ReplicaResource, StateFolder
from lifecycle.models.sensors import model_drop, promotions
from lifecycle.schedules import SCHEDULES


def build_defs(**overrides: Any) -> Definitions:
    """Assemble the code location.

    Args:
        overrides: resources by name (``state``, ``replica``), in place of those that
            follow the environment.
    """
    resources = {
        "state": StateFolder(),
        "replica": ReplicaResource.from_environment(),
        "machine": HostResource(),
        "memory": mem_io_manager,
    }
    return Definitions(
        assets=[
            model_artifact,
            model_manifest,
            registered_version,
            promoted_version,
            deployed_version,
            serving_fleet,
            autoscale_simulation,
            host_report,
            *DRIFT_ASSETS,
            *MAINTENANCE_ASSETS,
        ],
        asset_checks=GATE_CHECKS,
        jobs=[
            intake_model,
            reload_model,
            recover_replica,
            scale_replicas,
            drain_host,
            recover_host,
            verify_host,
            *DRIFT_JOBS,
            *MAINTENANCE_JOBS,
        ],
        schedules=SCHEDULES,
        sensors=[model_drop, promotions, gpu_metrics, health_probes],
        resources=resources | overrides,
    )


defs = build_defs()
