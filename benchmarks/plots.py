"""Pictures of benchmark results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display on a server

from matplotlib import pyplot

from benchmarks.load import Figures, Workload


def plot_throughput(
    results: Mapping[str, Mapping[tuple[Workload, int], Figures]], path: Path
) -> Path:
    """One group of bars a workload, one bar a server: output tokens per second.

    Returns:
        ``path``, a PNG.
    """
    groups = list(next(iter(results.values())))
    width = 0.8 / len(results)
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for offset, (name, runs) in enumerate(results.items()):
        positions = [index + offset * width for index in range(len(groups))]
        heights = [runs[group].output_tokens_per_second for group in groups]
        bars = axes.bar(positions, heights, width, label=name)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    labels = [f"{workload}, {clients} client{'s' * (clients > 1)}" for workload, clients in groups]
    centre = width * (len(results) - 1) / 2
    axes.set_xticks([index + centre for index in range(len(groups))], labels)
    axes.set_ylabel("output tokens/s")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
