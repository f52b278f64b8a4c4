"""The fleet's sensors on a real state folder, evaluated in process, with no replica running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.plant import Plant
from tests.support.ports import free_port
from tests.support.registered import add_version, promote, write_text_only_model


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    # No GPU of the machine that runs the tests may be looked at.
    monkeypatch.setenv("IRONWORKS_HOST_ROOT", str(tmp_path / "no-gpu"))
    paths = StatePaths(tmp_path / "state").create()
    with Registry.open(paths.registry) as registry:
        add_version(registry, write_text_only_model(tmp_path / "m", weights=b"w"), "tiny@v1")
        promote(registry, "tiny@v1")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(paths, free_port(), instance)


def declare(plant: Plant, state: str = "running") -> DesiredReplica:
    replica = DesiredReplica(
        f"replica-{plant.port}",
        "127.0.0.1",
        plant.port,
        "tiny",
        state=state,  # type: ignore[arg-type]
    )
    with plant.registry() as registry:
        registry.fleet.set(replica, actor="test", reason="a test needs it")
    return replica


def aged(cursor: str | None, seconds: float) -> str:
    """The cursor as it would be, had its fault been seen so many seconds earlier."""
    value = json.loads(cursor or "{}")
    for watch in value["watches"].values():
        watch["since"] -= seconds
    return json.dumps(value)


def skipped(result: dg.SensorResult) -> str:
    assert not result.run_requests
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def test_an_empty_fleet_asks_for_nothing(plant: Plant) -> None:
    assert skipped(plant.tick("health_probes")) == "nothing is declared"
    assert skipped(plant.tick("gpu_metrics")) == "no replica is declared"


def test_a_replica_that_nobody_starts_is_asked_for_once_with_its_place(plant: Plant) -> None:
    replica = declare(plant)
    first = plant.tick("health_probes")
    assert "not started yet" in skipped(first)
    (event,) = first.asset_events or []
    assert event.asset_key == dg.AssetKey("serving_fleet")
    assert event.metadata["declared"].value == 1 and event.metadata["ready"].value == 0

    second = plant.tick("health_probes", aged(first.cursor, 100))
    (request,) = second.run_requests or []
    assert request.job_name == "recover_replica"
    assert request.run_key is not None
    assert request.run_key.startswith(f"recover:{replica.service}:")
    assert request.tags["ironworks/service"] == replica.service
    assert request.tags["ironworks/host"]
    config = request.run_config["ops"]["confirm_replica_fault"]["config"]
    assert (config["service"], config["fault"]) == (replica.service, "never_started")
    assert type(config["fault"]) is str, "Dagster stores no enumeration of ours"

    third = plant.tick("health_probes", second.cursor)
    assert "cool-down" in skipped(third)


@pytest.mark.parametrize("state", ["stopped", "drained"])
def test_what_should_not_run_is_left_alone(plant: Plant, state: str) -> None:
    declare(plant, state)
    first = plant.tick("health_probes")
    second = plant.tick("health_probes", aged(first.cursor, 10_000))
    assert f"should be {state}" in skipped(second)


def test_a_run_that_is_under_way_is_not_asked_for_again(plant: Plant) -> None:
    replica = declare(plant)
    cursor = aged(plant.tick("health_probes").cursor, 100)
    job = plant.defs.resolve_job_def("recover_replica")
    plant.instance.create_run_for_job(
        job,
        run_config={"ops": {"confirm_replica_fault": {"config": {"service": replica.service}}}},
        tags={"ironworks/service": replica.service},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert "a run is under way" in skipped(plant.tick("health_probes", cursor))
    assert "a recovery is under way" in skipped(plant.tick("gpu_metrics"))


def test_dry_run_tells_and_asks_for_nothing(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(plant)
    monkeypatch.setenv("IRONWORKS_DRY_RUN", "1")
    cursor = aged(plant.tick("health_probes").cursor, 100)
    assert "not started yet" in skipped(plant.tick("health_probes", cursor))


def test_the_live_state_is_written_on_change_and_once_a_minute_at_most(plant: Plant) -> None:
    declare(plant, "stopped")
    first = plant.tick("health_probes")
    assert len(first.asset_events or []) == 1
    second = plant.tick("health_probes", first.cursor)
    assert not second.asset_events
    value = json.loads(second.cursor or "{}")
    value["shown"]["at"] -= 61
    third = plant.tick("health_probes", json.dumps(value))
    assert len(third.asset_events or []) == 1


def test_a_scale_decision_that_is_not_carried_out_says_why(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(plant)
    monkeypatch.setenv("IRONWORKS_SCALE_MIN", "2")
    monkeypatch.setenv("IRONWORKS_SCALE_MAX", "4")
    result = plant.tick("gpu_metrics")
    message = skipped(result)
    assert "1 → 2 replicas: fewer than the minimum of 2" in message
    assert "not done: a single replica has no proxy" in message
    (event,) = result.asset_events or []
    assert isinstance(event, dg.AssetObservation)
    assert event.metadata["decision"].value == message
    assert event.metadata["inputs"].value["in_system"] == 0


def test_attempts_that_are_used_up_are_an_event_and_an_alert(plant: Plant) -> None:
    replica = declare(plant)
    value = json.loads(plant.tick("health_probes").cursor or "{}")
    watch = value["watches"][replica.service]
    watch |= {"epoch": 5, "asked": [], "since": watch["since"] - 500}
    result = plant.tick("health_probes", json.dumps(value))
    assert "a person is needed" in skipped(result)
    again = plant.tick("health_probes", result.cursor)
    assert "given up" in skipped(again)
    with plant.registry() as registry:
        kinds = [event.kind for event in registry.audit.events()]
    assert kinds.count("alert.replica") == 1
    assert kinds.count("recovery.replica_given_up") == 1
