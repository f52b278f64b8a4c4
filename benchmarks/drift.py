"""How often stationary traffic alarms, how soon a shift does, and what the canary catches.

``python -m benchmarks.drift [--quick] [--plot DIR]``. Traffic is made up (`drift_traffic`) and
passes through the replica's own sketches and the report's own judgement; the canary runs on the
demo model. ``--quick`` judges as many stationary windows, from fewer independent references.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.drift_canary import NOISE, measure
from benchmarks.drift_traffic import SHIFTS, STREAM, Clock, Source, sketched
from benchmarks.report import Target, parse_options, print_result
from lifecycle.drift.verdict import Judgement, Rule, decide, judge
from lifecycle.drift.windows import streams_of
from registry.paths import StatePaths
from serving.telemetry.sketches import Sketches

RULE = Rule()
JUDGEMENTS = 60
"""Of each stationary stream."""
PATIENCE = 2000
"""Requests after a shift within which an alarm counts."""


@dataclass
class Stationary:
    """What traffic without a shift came to."""

    judgements: int = 0
    beyond: int = 0
    alarms: int = 0
    signals: Counter[str] = field(default_factory=Counter)


def stationary(streams: int) -> Stationary:
    """Judge streams of which each has a reference of its own."""
    seen = Stationary()
    for seed in range(streams):
        requests = RULE.reference_requests + JUDGEMENTS * RULE.judged_requests
        judgements = judged(sketched(Source(seed), requests))
        for count, judgement in enumerate(judgements, start=1):
            seen.judgements += 1
            seen.beyond += bool(judgement.beyond)
            seen.signals.update(judgement.beyond)
            seen.alarms += decide(judgements[:count], RULE).outcome == "alarm"
    return seen


def delay(shift: str, seed: int) -> tuple[int, tuple[str, ...]] | None:
    """Requests from a shift, at any place within a window, to its alarm; and what alarmed."""
    source, sketches = Source(seed), Sketches(clock=Clock())
    before = RULE.reference_requests + 400 + 37 * seed % 200
    for seen, _ in zip(source, range(before), strict=False):
        sketches.add(STREAM, seen)
    source.traffic = SHIFTS[shift](source.traffic)
    for seen, _ in zip(source, range(PATIENCE), strict=False):
        sketches.add(STREAM, seen)
    judgements = judged(sketches.as_json())
    for count in range(1, len(judgements) + 1):
        verdict = decide(judgements[:count], RULE)
        requests = RULE.reference_requests + count * RULE.judged_requests - before
        if verdict.outcome == "alarm" and requests > 0:
            return requests, verdict.signals
    return None


def judged(sketches: dict[str, object]) -> list[Judgement]:
    """Judge what follows the reference, in groups from its end."""
    signals, streams = streams_of([sketches])
    [windows] = streams.values()
    size = windows[0].requests
    first, group = RULE.reference_requests // size, RULE.judged_requests // size
    reference = windows[:first]
    return [
        judge(signals, reference, windows[start : start + group], RULE)
        for start in range(first, len(windows) - group + 1, group)
    ]


def request_microseconds(requests: int = 3000) -> float:
    """What counting one sequence costs the replica, decoding left out."""
    source = Source(0)
    drawn = [seen for seen, _ in zip(source, range(requests), strict=False)]
    sketches = Sketches()
    started = time.perf_counter()
    for seen in drawn:
        sketches.add(STREAM, seen)
    return (time.perf_counter() - started) / requests * 1e6


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__)
    load = os.getloadavg()
    seen = stationary(17 if options.quick else 40)
    figures: dict[str, object] = {
        "stationary_windows": seen.judgements,
        "false_alarm_rate": seen.alarms / seen.judgements,
        "beyond_threshold_rate": seen.beyond / seen.judgements,
        "beyond_by_signal": dict(seen.signals),
        "sketch_microseconds_per_request": round(request_microseconds(), 1),
    }
    targets: dict[str, Target] = {
        "stationary_windows": (">=", 1000),
        "false_alarm_rate": ("<=", 0.01),
    }
    tries = 5 if options.quick else 25
    for shift in SHIFTS:
        found = [one for seed in range(tries) if (one := delay(shift, 1000 + seed)) is not None]
        figures[f"{shift}_detected"] = len(found) / tries
        targets[f"{shift}_detected"] = (">=", 1.0)
        if found:
            figures[f"{shift}_delay_requests_median"] = statistics.median(d for d, _ in found)
            figures[f"{shift}_delay_requests_max"] = max(d for d, _ in found)
            figures[f"{shift}_signals"] = sorted({name for _, names in found for name in names})
    model = demo_model()
    if model is None:
        figures["canary"] = "absent: run `make demo-model`"
    else:
        figures |= measure(model, 1 if options.quick else 5)
        targets["canary_false_alarms"] = ("<=", 0)
        targets["canary_changed_weights_caught"] = (">=", len(NOISE))
    if options.plot is not None:
        figures["plot"] = str(_plot(options.plot))
    print_result("drift", figures, targets, load)


def demo_model() -> Path | None:
    """The demo model's directory where it has been fetched."""
    directory = StatePaths(Path("var").resolve()).demo / "model"
    return directory if (directory / "config.json").is_file() else None


def _plot(folder: Path) -> Path:
    """The signals' effects before and after each shift."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6), layout="constrained")
    for shift, place in zip(SHIFTS, axes.flat, strict=True):
        source, sketches = Source(1), Sketches(clock=Clock())
        for requests in (RULE.reference_requests + 2000, 2000):
            for seen, _ in zip(source, range(requests), strict=False):
                sketches.add(STREAM, seen)
            source.traffic = SHIFTS[shift](source.traffic)
        judgements = judged(sketches.as_json())
        for name in sorted({name for one in judgements for name in one.beyond}):
            ratios = [
                next(s.effect / s.threshold for s in one.signals if s.name == name)
                for one in judgements
            ]
            place.plot([200 * n - 1800 for n in range(len(ratios))], ratios, label=name)
        place.axhline(1, color="black", linewidth=0.8)
        place.set_yscale("log")
        place.set_title(shift)
        place.set_xlabel("requests since the shift")
        place.set_ylabel("effect / threshold")
        place.legend(frameon=False, fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "drift.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    main()
