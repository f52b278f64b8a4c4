"""The two sensors of the model assets: thin wrappers round pure decisions."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from lifecycle.models import drop_folder, rollout
from lifecycle.models.assets import (
    PRODUCTION,
    model_artifact,
    model_manifest,
    registered_version,
)
from lifecycle.models.jobs import intake_model, reload_model
from lifecycle.models.partitions import MODEL_VERSION, VersionKey
from lifecycle.models.resources import ReplicaResource, StateFolder
from lifecycle.models.service import ServedModels
from registry.checkpoint_files import is_complete
from registry.errors import InputError
from registry.store import Registry

SETTLE_VARIABLE = "IRONWORKS_INTAKE_SETTLE_SECONDS"
_UNDER_WAY = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
# For a version that is registered already: find out whether its files are still the same.
_COMPARE = [model_artifact.key, model_manifest.key, registered_version.key]
# The sensor daemon looks every 5 s, so an interval of 9 s fires every 10.
_TEN_SECONDS = 9


@sensor(
    job=intake_model,
    minimum_interval_seconds=_TEN_SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
)
def model_drop(context: SensorEvaluationContext, state: StateFolder) -> SensorResult | SkipReason:
    """Start intake_model for each complete new directory of the drop folder."""
    handled: Mapping[str, str] = json.loads(context.cursor or "{}")
    dropped = drop_folder.observe(state.paths.intake, handled, is_complete, time.time())
    decision = drop_folder.decide(dropped, handled, _settle_seconds())
    names = [item.name for item in decision.intake]
    superseded = _superseded(state, names)
    return SensorResult(
        run_requests=[
            RunRequest(
                run_key=f"intake:{item.name}:{item.fingerprint}",
                partition_key=item.name,
                tags={"ironworks/version": item.name},
                asset_selection=_COMPARE if item.name in superseded else None,
            )
            for item in decision.intake
        ],
        dynamic_partitions_requests=[MODEL_VERSION.build_add_request(names)] if names else [],
        cursor=json.dumps(decision.handled, sort_keys=True),
        skip_reason=None if names else "; ".join(decision.waiting) or "nothing new was dropped",
    )


@sensor(
    job=reload_model,
    minimum_interval_seconds=_TEN_SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
)
def promotions(
    context: SensorEvaluationContext, state: StateFolder, replica: ReplicaResource
) -> SensorResult | SkipReason:
    """Start reload_model when production names another version than a replica serves."""
    if not state.paths.registry.is_dir():
        return SkipReason("there is no registry yet")
    with state.registry() as registry:
        wanted = _wanted(registry)
    models = ServedModels(replica.fleet(state.paths))
    decision = rollout.decide(
        wanted,
        {want.key.model: models.views(want.key.model) for want in wanted},
        models_being_reloaded(context.instance),
        rollout.attempts_from_json(json.loads(context.cursor or "{}")),
        time.time(),
    )
    names = [str(reload.wanted.key) for reload in decision.reloads]
    cursor = {model: asdict(attempts) for model, attempts in decision.attempts.items()}
    return SensorResult(
        run_requests=[
            RunRequest(
                run_key=reload.run_key,
                partition_key=str(reload.wanted.key),
                tags={
                    "ironworks/version": str(reload.wanted.key),
                    "ironworks/replica": models.tag,
                },
            )
            for reload in decision.reloads
        ],
        # A version that was registered by the command line has no partition yet.
        dynamic_partitions_requests=[MODEL_VERSION.build_add_request(names)] if names else [],
        cursor=json.dumps(cursor, sort_keys=True),
        skip_reason=None if names else "; ".join(decision.notes) or "nothing is promoted yet",
    )


def _settle_seconds() -> float:
    text = os.environ.get(SETTLE_VARIABLE) or "3"
    try:
        return float(text)
    except ValueError:
        raise InputError(
            "the settle time is not a number of seconds", where=SETTLE_VARIABLE, fix="such as 3"
        ) from None


def _superseded(state: StateFolder, names: list[str]) -> set[str]:
    """Of ``names``, those that are registered while production names another version.

    Touching a file of an old version must not put that version back into production;
    going back is a rollback, which has its own command and its own event.
    """
    if not names:
        return set()
    with state.registry() as registry:
        registered = {version.name: version for version in registry.versions()}
        production = {
            alias.model: alias.digest for alias in registry.aliases() if alias.alias == PRODUCTION
        }
    return {
        name
        for name in names
        if name in registered
        and production.get(registered[name].model, registered[name].digest)
        != registered[name].digest
    }


def _wanted(registry: Registry) -> list[rollout.Wanted]:
    result = []
    for alias in registry.aliases():
        if alias.alias == PRODUCTION:
            version = registry.version(alias.digest)
            key = VersionKey(version.model, version.version)
            result.append(rollout.Wanted(key, version.digest, alias.revision))
    return result


def models_being_reloaded(instance: DagsterInstance) -> set[str]:
    """Models for which a run of reload_model is queued or running."""
    runs = instance.get_runs(filters=RunsFilter(job_name=reload_model.name, statuses=_UNDER_WAY))
    keys = [run.tags.get("dagster/partition", "") for run in runs]
    return {key.split("@")[0] for key in keys}
