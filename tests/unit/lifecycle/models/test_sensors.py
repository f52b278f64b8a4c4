"""The sensors on a real state folder, evaluated in process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest

from lifecycle.models.partitions import MODEL_VERSION
from lifecycle.models.sensors import models_being_reloaded
from tests.support.checkpoints import flip_byte
from tests.support.plant import Plant
from tests.support.registered import add_version, promote


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRONWORKS_INTAKE_SETTLE_SECONDS", "0")


def test_a_dropped_model_gets_its_partition_and_its_run_in_one_tick(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    plant.drop(tiny_checkpoint)
    result = plant.tick("model_drop")
    (request,) = result.run_requests or []
    assert request.partition_key == "tiny@v1"
    assert request.run_key is not None and request.run_key.startswith("intake:tiny@v1:")
    (partitions,) = result.dynamic_partitions_requests or []
    assert partitions.partitions_def_name == MODEL_VERSION.name
    assert partitions.partition_keys == ["tiny@v1"]

    again = plant.tick("model_drop", result.cursor)
    assert not again.run_requests
    assert again.skip_reason is not None
    assert again.skip_reason.skip_message == "nothing new was dropped"


def test_a_missing_shard_is_named_in_the_skip_reason(plant: Plant, demo_model_dir: Path) -> None:
    directory = plant.paths.intake / "demo" / "v1"
    directory.mkdir(parents=True)
    for file in demo_model_dir.iterdir():
        if "00002-of" not in file.name:
            shutil.copyfile(file, directory / file.name)
    result = plant.tick("model_drop")
    assert not result.run_requests
    assert result.skip_reason is not None
    message = result.skip_reason.skip_message or ""
    assert "demo@v1" in message and "00002-of-00003" in message


def test_nothing_is_promoted_yet(plant: Plant) -> None:
    result = plant.tick("promotions")
    assert not result.run_requests


def test_a_promoted_version_without_a_replica_asks_for_a_reload_once(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    directory = plant.drop(tiny_checkpoint)
    with plant.registry() as registry:
        version = add_version(registry, directory, "tiny@v1")
        promote(registry, "tiny@v1")

    first = plant.tick("promotions")
    (request,) = first.run_requests or []
    assert request.partition_key == "tiny@v1"
    assert request.tags["ironworks/replica"].startswith("replica-")
    assert request.run_key is not None and version.short in request.run_key
    (partitions,) = first.dynamic_partitions_requests or []
    assert partitions.partition_keys == ["tiny@v1"]

    second = plant.tick("promotions", first.cursor)
    assert not second.run_requests
    assert second.skip_reason is not None
    assert "next attempt in" in (second.skip_reason.skip_message or "")
    assert json.loads(second.cursor or "")["tiny"]["count"] == 1


def test_a_reload_that_runs_is_not_asked_for_again(plant: Plant) -> None:
    plant.instance.add_dynamic_partitions(MODEL_VERSION.name, ["tiny@v1"])
    job = plant.defs.resolve_job_def("reload_model")
    plant.instance.create_run_for_job(
        job, tags={"dagster/partition": "tiny@v1"}, status=dg.DagsterRunStatus.STARTED
    )
    assert models_being_reloaded(plant.instance) == {"tiny"}


def test_touching_an_old_version_does_not_promote_it_again(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    first = plant.drop(tiny_checkpoint, "tiny@v1")
    second = plant.drop(tiny_checkpoint, "tiny@v2")
    flip_byte(second / "model.safetensors")
    with plant.registry() as registry:
        for name, directory in (("tiny@v1", first), ("tiny@v2", second)):
            add_version(registry, directory, name)
            promote(registry, name)
    (first / "config.json").touch()
    requests = {r.partition_key: r for r in plant.tick("model_drop").run_requests or []}
    selected = {key.to_user_string() for key in requests["tiny@v1"].asset_selection or []}
    assert selected == {"model_artifact", "model_manifest", "registered_version"}
    assert requests["tiny@v2"].asset_selection is None
