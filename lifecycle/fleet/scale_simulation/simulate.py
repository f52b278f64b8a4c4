"""Run a scaling rule through a trace and judge what became of the requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from lifecycle.fleet import autoscale
from lifecycle.fleet.autoscale import FleetLoad, ScaleState
from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scale_simulation import article
from lifecycle.fleet.scale_simulation.plant import Plant, PlantFacts
from lifecycle.fleet.scale_simulation.traces import Trace

LOOK_SECONDS = 30
"""Between two looks at the fleet: the interval of the sensor ``gpu_metrics``."""
FLAP_SECONDS = 300
"""A change that is turned round within this time is a flap: nobody would have made it twice."""

Policy = Callable[[FleetLoad, float], int]
"""From what is seen now, and the time in seconds, to the number of replicas."""


@dataclass(frozen=True)
class Sample:
    """The fleet at one look."""

    seconds: int
    rate: float
    in_system: int
    replicas: int
    ready: int
    waited_seconds: float


@dataclass(frozen=True)
class Outcome:
    """One policy on one trace.

    Attributes:
        samples: one each look.
        changes: how often the number of replicas was changed.
        flaps: changes in the opposite direction within ``FLAP_SECONDS`` of the last one.
        over_goal_share: part of the time in which the oldest waiting request had waited
            longer than the goal of the time to first token.
        late_share: part of the answered requests whose first token came after the goal.
        refused_share: part of all requests that were refused because everything was full.
        replica_hours: what it cost.
    """

    samples: tuple[Sample, ...]
    changes: int
    flaps: int
    over_goal_share: float
    late_share: float
    refused_share: float
    replica_hours: float


def ours(rule: ScaleRule) -> Policy:
    """The decision of production, with its memory."""
    state = ScaleState()

    def policy(load: FleetLoad, now: float) -> int:
        nonlocal state
        decision = autoscale.decide(load, state, now, rule)
        state = decision.state
        return decision.target

    return policy


def policies(rule: ScaleRule) -> Mapping[str, Policy]:
    """Ours and the article's two, fresh."""
    return {
        "ironworks": ours(rule),
        "article formula": _stateless(article.formula, rule),
        "article thresholds": _stateless(article.thresholds, rule),
    }


def simulate(
    trace: Trace,
    policy: Policy,
    rule: ScaleRule,
    *,
    seed: int,
    facts: PlantFacts | None = None,
) -> Outcome:
    """Run ``policy`` on ``trace``; the same seed gives the same requests to every policy."""
    plant = Plant(facts or PlantFacts(), seed, rule.min_replicas)
    plant.late_goal_seconds = rule.ttft_goal_seconds
    samples, moves = [], []
    over = cost = 0
    for second in range(trace.seconds):
        plant.step(trace.rate(second))
        over += plant.waited_seconds > rule.ttft_goal_seconds
        cost += plant.replicas
        if plant.now % LOOK_SECONDS:
            continue
        load = plant.observe()
        target = policy(load, float(plant.now))
        if target != load.replicas:
            moves.append((plant.now, target - load.replicas))
            plant.scale(target)
        samples.append(
            Sample(
                plant.now,
                trace.rate(second),
                load.in_system,
                target,
                load.ready,
                plant.waited_seconds,
            )
        )
    answered = max(1, plant.arrived - plant.refused)
    return Outcome(
        samples=tuple(samples),
        changes=len(moves),
        flaps=_flaps(moves),
        over_goal_share=over / trace.seconds,
        late_share=plant.late / answered,
        refused_share=plant.refused / max(1, plant.arrived),
        replica_hours=cost / 3600,
    )


def _flaps(moves: list[tuple[int, int]]) -> int:
    pairs = pairwise(moves)
    return sum(b[0] - a[0] < FLAP_SECONDS and (a[1] > 0) != (b[1] > 0) for a, b in pairs)


def _stateless(rule_of: Callable[[FleetLoad, ScaleRule], int], rule: ScaleRule) -> Policy:
    return partial(_ignore_time, rule_of, rule)


def _ignore_time(
    rule_of: Callable[[FleetLoad, ScaleRule], int], rule: ScaleRule, load: FleetLoad, _: float
) -> int:
    return rule_of(load, rule)
