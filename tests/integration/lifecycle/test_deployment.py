"""Promotion to a real replica: start, swap, refusal. Real processes, no Dagster daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lifecycle.fleet.supervisors.local import LocalSupervisor
from registry.paths import StatePaths
from tests.support.plant import Plant, failure_of, metadata_of
from tests.support.ports import free_port
from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    paths = StatePaths(tmp_path / "state").create()
    port = free_port()
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(paths, port, instance)
    LocalSupervisor(paths).stop(f"replica-{port}", grace_seconds=20)


@pytest.mark.timeout(600)
def test_the_replica_follows_the_production_alias(
    plant: Plant, tmp_path: Path, demo_model_dir: Path
) -> None:
    for seed, name in enumerate(("tiny@v1", "tiny@v2")):
        source = make_tiny_checkpoint(
            tmp_path / f"model-{seed}", text_files_of=demo_model_dir, seed=seed
        )
        plant.drop(source, name)
    assert plant.run("intake_model", "tiny@v1").success

    wanted = plant.tick("promotions")
    assert [request.partition_key for request in wanted.run_requests or []] == ["tiny@v1"]
    started = plant.run("reload_model", "tiny@v1")
    assert started.success
    first = metadata_of(started, "deployed_version")
    assert first["did"] == "start"
    assert first["x-model-version"] == str(first["digest"])[:12]

    settled = plant.tick("promotions", wanted.cursor)
    assert not settled.run_requests
    assert settled.skip_reason is not None
    assert settled.skip_reason.skip_message == "tiny@v1: served"
    again = plant.run("reload_model", "tiny@v1")
    assert metadata_of(again, "deployed_version")["did"] == "none"

    assert plant.run("intake_model", "tiny@v2").success
    moved = plant.tick("promotions", settled.cursor)
    assert [request.partition_key for request in moved.run_requests or []] == ["tiny@v2"]
    swapped = plant.run("reload_model", "tiny@v2")
    assert swapped.success
    second = metadata_of(swapped, "deployed_version")
    assert second["did"] == "swap"
    assert second["digest"] != first["digest"]

    refused = plant.run("reload_model", "tiny@v1")
    assert "production of tiny is tiny@v2, not tiny@v1" in failure_of(refused, "deployed_version")

    with plant.registry() as registry:
        registry.rollback("tiny", alias="production", actor="test", reason="test")
    back = plant.tick("promotions", moved.cursor)
    assert [request.partition_key for request in back.run_requests or []] == ["tiny@v1"]
    assert plant.run("reload_model", "tiny@v1").success
