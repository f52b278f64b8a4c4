"""The scale decision of production on seeded load traces, beside the article's rules.

A model of a fleet (``lifecycle/fleet/scale_simulation/plant.py``) stands in for hardware; the
decision is the very function that the sensor ``gpu_metrics`` calls.
"""

from __future__ import annotations

import os
from statistics import mean

from benchmarks.report import Options, Target, parse_options, print_result
from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scale_simulation.plot import plot
from lifecycle.fleet.scale_simulation.simulate import Outcome, policies, simulate
from lifecycle.fleet.scale_simulation.traces import TRACES

RULE = ScaleRule(max_replicas=12)

TARGETS: dict[str, Target] = {
    "flaps": ("<=", 0),
    # The article's formula waits less because it asks for half as many machines again as there
    # are requests, and turns that round at the next look; this is what it costs.
    "replica_hours_vs_article_formula": ("<=", 0.7),
    "flaps_of_article_formula": (">=", 1),
}


def main() -> None:
    """Run every trace with every rule, print a table and the result line."""
    options = parse_options(__doc__)
    load_average = os.getloadavg()
    seeds = range(3 if options.quick else 20)
    results = {
        trace: {
            name: [simulate(TRACES[trace], policies(RULE)[name], RULE, seed=s) for s in seeds]
            for name in policies(RULE)
        }
        for trace in TRACES
    }
    _print_table(results)
    _plot(results, options)
    ours = [o for rules in results.values() for o in rules["ironworks"]]
    article = [o for rules in results.values() for o in rules["article formula"]]
    figures: dict[str, object] = {
        "seeds": len(seeds),
        "flaps": sum(outcome.flaps for outcome in ours),
        "flaps_of_article_formula": sum(outcome.flaps for outcome in article),
        "replica_hours_vs_article_formula": round(
            sum(o.replica_hours for o in ours) / sum(o.replica_hours for o in article), 3
        ),
    }
    for trace, rules in results.items():
        for name, outcomes in rules.items():
            key = f"{trace}.{name.replace(' ', '_')}"
            figures[f"{key}.over_goal_share"] = round(mean(o.over_goal_share for o in outcomes), 4)
            figures[f"{key}.flaps"] = round(mean(o.flaps for o in outcomes), 2)
    print_result("autoscale", figures, TARGETS, load_average)


def _print_table(results: dict[str, dict[str, list[Outcome]]]) -> None:
    """Means over the seeds."""
    print(
        f"{'trace':10}{'rule':20}{'replicas':>9}{'changes':>9}{'flaps':>7}"
        f"{'over goal':>11}{'late':>8}{'refused':>9}{'replica h':>11}"
    )
    for trace, rules in results.items():
        for name, outcomes in rules.items():
            most = max(sample.replicas for o in outcomes for sample in o.samples)
            print(
                f"{trace:10}{name:20}{most:9d}{mean(o.changes for o in outcomes):9.1f}"
                f"{mean(o.flaps for o in outcomes):7.1f}"
                f"{mean(o.over_goal_share for o in outcomes):11.2%}"
                f"{mean(o.late_share for o in outcomes):8.2%}"
                f"{mean(o.refused_share for o in outcomes):9.2%}"
                f"{mean(o.replica_hours for o in outcomes):11.1f}"
            )


def _plot(results: dict[str, dict[str, list[Outcome]]], options: Options) -> None:
    if options.plot is None:
        return
    options.plot.mkdir(parents=True, exist_ok=True)
    for trace, rules in results.items():
        first = {name: outcomes[0] for name, outcomes in rules.items()}
        (options.plot / f"autoscale-{trace}.png").write_bytes(plot(TRACES[trace], first, dpi=120))


if __name__ == "__main__":
    main()
