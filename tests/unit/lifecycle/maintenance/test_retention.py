"""Old runs go with every file they left; what the UI still needs stays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lifecycle.maintenance import retention, storage
from lifecycle.maintenance.assets import dagster_retention
from lifecycle.maintenance.retention import Rules, RunFacts

DAY = 86_400.0
NOW = 1000 * DAY


def facts(run_id: str, days_ago: float | None, *, ok: bool = True, about: str = "job") -> RunFacts:
    ended = None if days_ago is None else NOW - days_ago * DAY
    return RunFacts(run_id, (about, "", frozenset()), ok, ended)


def test_age_decides_and_the_newest_success_of_each_subject_stays() -> None:
    runs = [
        facts("new", 1),
        facts("old", 20),
        facts("older", 40),
        facts("failed", 20, ok=False),
        facts("failed-long-ago", 40, ok=False),
        facts("running", None),
        facts("deployed-last-year", 300, about="reload"),
    ]
    assert retention.decide(runs, Rules(14, 30), NOW) == ["older", "failed-long-ago", "old"]


@dg.asset
def noted() -> None:
    print("to the captured output")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


def materialise(instance: dg.DagsterInstance) -> str:
    return dg.materialize([noted], instance=instance).run_id


def files_of(instance: dg.DagsterInstance, run_id: str) -> list[Path]:
    return [path for path in Path(instance.root_directory).rglob("*") if run_id in str(path)]


def retain(instance: dg.DagsterInstance, **config: object) -> dict[str, object]:
    done = dg.materialize(
        [dagster_retention],
        instance=instance,
        run_config={"ops": {"dagster_retention": {"config": config}}},
    )
    (event,) = done.asset_materializations_for_node("dagster_retention")
    return {name: value.value for name, value in event.metadata.items()}


def test_a_deleted_run_leaves_no_file_and_the_asset_keeps_its_newest_state(
    instance: dg.DagsterInstance,
) -> None:
    old, new = materialise(instance), materialise(instance)
    assert files_of(instance, old)
    looked = retain(instance, success_days=0, dry_run=True)
    assert looked["deleted_runs"] == 1
    assert instance.has_run(old)

    done = retain(instance, success_days=0)
    # The first retention run is an old success of its own subject.
    assert done["deleted_runs"] == 2
    assert not instance.has_run(old)
    assert files_of(instance, old) == []
    latest = instance.get_latest_materialization_event(dg.AssetKey("noted"))
    assert latest is not None
    assert latest.run_id == new


def test_files_of_a_run_that_was_deleted_elsewhere_are_unlinked(
    instance: dg.DagsterInstance,
) -> None:
    run_id = materialise(instance)
    instance.delete_run(run_id)  # as the UI does
    left = files_of(instance, run_id)
    assert left, "Dagster leaves files; if it no longer does, this sweep can go"
    for path in left:
        os.utime(path, (0, 0))
    assert storage.delete_strays(instance, time.time()).files > 0
    assert files_of(instance, run_id) == []


def test_live_state_is_thinned_out_and_its_newest_event_stays(
    instance: dg.DagsterInstance,
) -> None:
    key = dg.AssetKey("serving_fleet")
    for number in range(5):
        instance.report_runless_asset_event(
            dg.AssetMaterialization(key, metadata={"number": number})
        )
    assert storage.delete_runless_events(instance, time.time() + 60) == 4
    records = instance.fetch_materializations(key, limit=10).records
    (left,) = [record.asset_materialization for record in records]
    assert left is not None
    assert left.metadata["number"].value == 4
