"""The simulation as Dagster shows it: one picture per trace, and the article beside ours."""

from __future__ import annotations

import dagster as dg

from lifecycle.definitions import build_defs
from lifecycle.fleet.assets import autoscale_simulation
from lifecycle.fleet.scale_simulation.traces import TRACES


def test_the_simulation_shows_a_picture_per_trace_and_every_rule() -> None:
    result = dg.materialize([autoscale_simulation])
    (event,) = result.asset_materializations_for_node("autoscale_simulation")
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert metadata["flaps"] == 0
    for trace in TRACES:
        assert "data:image/png;base64," in str(metadata[f"plot_{trace}"])
    assert len(event.metadata["outcomes"].records) == 3 * len(TRACES)  # type: ignore[union-attr]


def test_every_job_and_sensor_of_the_fleet_is_listed() -> None:
    repository = build_defs().get_repository_def()
    assert {"gpu_metrics", "health_probes"} <= {s.name for s in repository.sensor_defs}
    jobs = {job.name: job for job in repository.get_all_jobs()}
    priorities = {
        name: int(jobs[name].tags.get("dagster/priority", "0"))
        for name in ("recover_host", "recover_replica", "scale_replicas", "reload_model")
    }
    assert priorities["recover_host"] >= priorities["recover_replica"]
    assert priorities["recover_replica"] > priorities["scale_replicas"]
    assert priorities["scale_replicas"] > priorities["reload_model"]
