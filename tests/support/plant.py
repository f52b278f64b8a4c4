"""Dagster's model assets on a state folder of their own, run in the test's process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from lifecycle.definitions import build_defs
from lifecycle.host.resources import HostResource
from lifecycle.models.partitions import MODEL_VERSION
from lifecycle.models.resources import ReplicaResource, StateFolder
from registry.paths import StatePaths
from registry.store import Registry


@dataclass(frozen=True)
class Plant:
    """The code location on one state folder and one replica address."""

    paths: StatePaths
    port: int
    instance: dg.DagsterInstance

    @property
    def resources(self) -> dict[str, dg.ConfigurableResource]:
        return {
            "state": StateFolder(root=str(self.paths.root)),
            "replica": ReplicaResource(port=self.port),
            "machine": HostResource(),
        }

    @property
    def defs(self) -> dg.Definitions:
        return build_defs(**self.resources)

    def registry(self) -> Registry:
        return Registry.open(self.paths.registry)

    def drop(self, source: Path, name: str = "tiny@v1") -> Path:
        """Copy a checkpoint into the drop folder."""
        model, version = name.split("@")
        target = self.paths.intake / model / version
        shutil.copytree(source, target)
        return target

    def run(
        self, job: str, name: str = "tiny@v1", *, only: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Run a job for one version, or a single asset or check (a step key) of it."""
        self.instance.add_dynamic_partitions(MODEL_VERSION.name, [name])
        return self.defs.resolve_job_def(job).execute_in_process(
            partition_key=name,
            instance=self.instance,
            raise_on_error=False,
            op_selection=None if only is None else [only],
        )

    def tick(self, sensor: str, cursor: str | None = None) -> dg.SensorResult:
        """Evaluate a sensor once, without launching anything."""
        repository = self.defs.get_repository_def()
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=repository,
            resources=self.resources,
        )
        result = repository.get_sensor_def(sensor)(context)
        assert isinstance(result, dg.SensorResult)
        return result


def metadata_of(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, object]:
    """The metadata of the one materialisation of an asset, as plain values."""
    (event,) = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult, step: str) -> str:
    """What the UI shows for a failed step."""
    (event,) = [e for e in result.all_events if e.is_step_failure and e.step_key == step]
    data = event.step_failure_data
    if data.user_failure_data is not None:
        return str(data.user_failure_data.description)
    assert data.error is not None
    return str(data.error.message)
