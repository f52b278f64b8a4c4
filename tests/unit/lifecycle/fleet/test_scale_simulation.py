"""The production decision on every trace: no flaps, work gets done, and the picture of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scale_simulation.plant import Plant, PlantFacts
from lifecycle.fleet.scale_simulation.plot import plot
from lifecycle.fleet.scale_simulation.simulate import ours, policies, simulate
from lifecycle.fleet.scale_simulation.traces import TRACES

RULE = ScaleRule(max_replicas=12)


@pytest.mark.parametrize("name", TRACES)
def test_no_trace_makes_the_fleet_flap(name: str) -> None:
    trace = TRACES[name]
    for seed in range(3):
        outcome = simulate(trace, ours(RULE), RULE, seed=seed)
        assert outcome.flaps == 0
        assert outcome.changes >= 2, "the load changes fourfold and more: it must be followed"
        assert outcome.over_goal_share < 0.06
        most = max(sample.replicas for sample in outcome.samples)
        assert outcome.samples[-1].replicas < most or name == "sawtooth", "it shrinks again"


def test_the_articles_formula_flaps_on_the_same_requests() -> None:
    outcome = simulate(TRACES["step"], policies(RULE)["article formula"], RULE, seed=0)
    assert outcome.flaps > 20


def test_the_same_seed_gives_the_same_run() -> None:
    trace = replace(TRACES["spike"], seconds=1200)
    first, second = (simulate(trace, ours(RULE), RULE, seed=7) for _ in range(2))
    assert first == second
    assert first != simulate(trace, ours(RULE), RULE, seed=8)


def test_the_model_serves_what_arrives_and_refuses_only_when_full() -> None:
    plant = Plant(PlantFacts(), seed=1, replicas=2)
    for _ in range(600):
        plant.step(2.0)  # half of what two replicas can do
    assert plant.refused == 0 and plant.waited_seconds < 2
    for _ in range(600):
        plant.step(20.0)
    assert plant.refused > 1000
    load = plant.observe()
    assert (load.replicas, load.ready, load.running) == (2, 2, 32)
    plant.scale(3)
    assert (plant.replicas, plant.ready) == (3, 2), "a replica serves only after its start"
    plant.scale(1)
    assert plant.observe().running > 16, "those that leave end what they run"


def test_the_picture_is_a_small_png() -> None:
    trace = replace(TRACES["step"], seconds=1500)
    outcomes = {name: simulate(trace, p, RULE, seed=0) for name, p in policies(RULE).items()}
    png = plot(trace, outcomes)
    assert png.startswith(b"\x89PNG") and len(png) < 120_000
