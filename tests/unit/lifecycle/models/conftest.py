"""A tiny checkpoint, and Dagster's assets on a state folder of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from lifecycle.definitions import build_defs
from lifecycle.models.partitions import MODEL_VERSION
from lifecycle.models.resources import ReplicaResource, StateFolder
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.ports import free_port
from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Path:
    return make_tiny_checkpoint(
        tmp_path_factory.mktemp("tiny") / "model", text_files_of=demo_model_dir
    )


@dataclass
class Plant:
    """The code location on one state folder, run in this process."""

    paths: StatePaths
    instance: dg.DagsterInstance
    defs: dg.Definitions

    def drop(self, source: Path, name: str = "tiny@v1") -> Path:
        """Copy a checkpoint into the drop folder."""
        model, version = name.split("@")
        target = self.paths.intake / model / version
        shutil.copytree(source, target)
        return target

    def run(
        self, job: str, name: str = "tiny@v1", *, only: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Run a job for one version, or one asset of it without its checks."""
        self.instance.add_dynamic_partitions(MODEL_VERSION.name, [name])
        return self.defs.resolve_job_def(job).execute_in_process(
            partition_key=name,
            instance=self.instance,
            raise_on_error=False,
            asset_selection=None if only is None else [dg.AssetKey(only)],
        )

    def registry(self) -> Registry:
        return Registry.open(self.paths.registry)


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    paths = StatePaths(tmp_path / "state").create()
    defs = build_defs(
        state=StateFolder(root=str(paths.root)), replica=ReplicaResource(port=free_port())
    )
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(paths, instance, defs)


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
