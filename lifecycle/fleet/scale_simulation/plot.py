"""One picture per trace: the load, and what each rule made of it."""

from __future__ import annotations

import io
from collections.abc import Mapping

from lifecycle.fleet.scale_simulation.simulate import Outcome
from lifecycle.fleet.scale_simulation.traces import Trace


def plot(trace: Trace, outcomes: Mapping[str, Outcome], *, dpi: int = 80) -> bytes:
    """Draw load and replicas over time as a PNG of some 40 kB."""
    # Imported here: the code server and every run would pay for it otherwise.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    load, replicas = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    for number, (name, outcome) in enumerate(outcomes.items()):
        minutes = [sample.seconds / 60 for sample in outcome.samples]
        style = {"linewidth": 2.0} if number == 0 else {"linewidth": 0.9, "alpha": 0.8}
        label = (
            f"{name}: {outcome.flaps} flaps, {outcome.over_goal_share:.1%} of the time over goal,"
            f" {outcome.replica_hours:.1f} replica hours"
        )
        counts = [sample.replicas for sample in outcome.samples]
        replicas.step(minutes, counts, where="post", label=label, **style)
        if number == 0:
            load.plot(minutes, [sample.rate for sample in outcome.samples], color="black")
            load.twinx().plot(minutes, [sample.in_system for sample in outcome.samples], alpha=0.5)
    load.set_title(f"trace {trace.name}: requests/s (black) and requests in the system")
    replicas.set_ylabel("replicas")
    replicas.set_xlabel("minutes")
    replicas.legend(frameon=False, fontsize=7, loc="upper left")
    replicas.set_ylim(0, replicas.get_ylim()[1] * 1.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
