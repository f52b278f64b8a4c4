"""Small pictures for the assets' pages, as PNG inside Markdown."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")  # no display on a server

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from lifecycle.drift.verdict import Judgement
from lifecycle.drift.windows import Signals, Window, total

DPI = 72


def histograms(signals: Signals, reference: Sequence[Window], newest: Sequence[Window]) -> str:
    """Each numeric signal: shares of the reference and of the newest requests, as Markdown."""
    names = signals.names("numeric")
    figure, axes = pyplot.subplots(2, 3, figsize=(10, 5), layout="constrained")
    for name, place in zip(names, np.ravel(axes), strict=False):
        edges = np.array(signals.definitions[name]["edges"])
        for windows, label in ((reference, "reference"), (newest, "newest")):
            counts = total(windows, name)[:-1]
            place.step(edges, counts / max(1, counts.sum()), where="mid", label=label)
        if edges[0] > 0:
            place.set_xscale("log")
            seen = np.flatnonzero(total([*reference, *newest], name)[:-1])
            if seen.size:
                low, high = max(0, seen[0] - 2), min(len(edges) - 1, seen[-1] + 2)
                place.set_xlim(edges[low], edges[high])
        place.set_title(name, fontsize=9)
    np.ravel(axes)[0].legend(frameon=False, fontsize=8)
    return _markdown(figure, "histograms of the reference and of the newest requests")


def trend(judgements: Sequence[Judgement]) -> str:
    """Each signal's effect over its threshold, judgement by judgement, as Markdown."""
    figure, axes = pyplot.subplots(figsize=(10, 3.5), layout="constrained")
    positions = range(1 - len(judgements), 1)
    for name in [signal.name for signal in judgements[-1].signals]:
        found = [
            next((s.effect / s.threshold for s in one.signals if s.name == name), np.nan)
            for one in judgements
        ]
        axes.plot(positions, found, marker=".", label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xlabel("judgement, the newest at 0")
    axes.set_ylabel("effect / threshold")
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(1, 1))
    return _markdown(figure, "effect over threshold")


def _markdown(figure: Figure, title: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI, format="png")
    pyplot.close(figure)
    return f"![{title}](data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()})"
