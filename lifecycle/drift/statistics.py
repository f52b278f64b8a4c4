"""How far two samples are apart, and how far chance alone would bring them.

All of it works on counts by bin. Counts of tokens, and latencies of neighbouring requests, are
not independent: chance moves them more than a multinomial sample. How much more is measured
between the windows of the reference and enters every threshold (`Dispersion`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, fdtrc, fdtri

from lifecycle.drift.windows import IntArray

FloatArray = NDArray[np.float64]

QUANTILES = 10
SMOOTHING = 0.5
"""Added to every bin of a PSI. The definition matters: on the same two samples, the PSI of
several libraries ran from 0.06 to 2.39 where theory says 0.09."""
RARE = 0.001
"""Categories with a smaller share of the reference are counted as one."""


@dataclass(frozen=True)
class Dispersion:
    """How much more than a multinomial sample the counts of a signal vary by chance.

    A statistic that is χ²(B-1) for independent counts is Σ λᵢ zᵢ² for clustered ones (Rao and
    Scott 1981, JASA 76); with the sum and the sum of squares of the λ known it is close to a
    scaled χ² (Satterthwaite 1946, Biometrics Bulletin 2). A sum that was itself measured, between
    few windows, makes that an F distribution.

    Attributes:
        trace: Σ λᵢ; B-1 for independent counts.
        freedom: (Σ λᵢ)² / Σ λᵢ², the degrees of freedom of that χ².
        measured: degrees of freedom of the measurement of ``trace``; infinite where it is known.
    """

    trace: float
    freedom: float
    measured: float = math.inf

    def quantile(self, probability: float) -> float:
        """Value that the statistic exceeds by chance with ``1 - probability``."""
        if math.isinf(self.measured):
            return self.trace / self.freedom * float(chdtri(self.freedom, 1 - probability))
        return self.trace * float(fdtri(self.freedom, self.measured, probability))

    def p_value(self, statistic: float) -> float:
        """Chance of a value at least as large."""
        if math.isinf(self.measured):
            return float(chdtrc(self.freedom, statistic * self.freedom / self.trace))
        return float(fdtrc(self.freedom, self.measured, statistic / self.trace))


def groups_by_quantile(reference: IntArray) -> IntArray:
    """Which group each ordered bin belongs to: at most ten by the reference's quantiles.

    Bins that the reference never filled make one more group, the last: a reference whose values
    are all alike has a single quantile group, and what leaves it must still count.

    Args:
        reference: counts, [bins].

    Returns:
        Group of each bin, [bins], from 0 and without gaps.
    """
    share = reference / max(1, reference.sum())
    # A bin is as wide as it is: it goes where its middle falls.
    middle = np.cumsum(share) - share / 2
    quantile = np.minimum((middle * QUANTILES).astype(np.int64), QUANTILES - 1)
    filled = np.unique(quantile[reference > 0])
    group: IntArray = np.searchsorted(filled, quantile)
    group[reference == 0] = len(filled)
    return group


def groups_by_share(reference: IntArray) -> IntArray:
    """One group for each category, and the last one for all rare ones together; [bins]."""
    rare = reference < RARE * max(1, reference.sum())
    group = np.cumsum(~rare) - 1
    group[rare] = int((~rare).sum())
    return group.astype(np.int64)


def grouped(counts: IntArray, group: IntArray) -> IntArray:
    """Counts by group; ``counts`` is [..., bins]."""
    belongs = group[:, None] == np.arange(int(group.max()) + 1)
    summed: IntArray = counts @ belongs.astype(np.int64)
    return summed


def dispersion(windows: IntArray) -> Dispersion:
    """Measure it between the windows of a reference: [windows, groups], at least two windows.

    Never below that of independent counts: few windows may agree by chance.
    """
    size = windows.sum(axis=1, keepdims=True)
    used = windows[:, windows.sum(axis=0) > 0]
    expected = size * used.sum(axis=0) / max(1, used.sum())
    independent = max(1, windows.shape[1] - 1)
    keep = (size > 0)[:, 0]
    residual = (used[keep] - expected[keep]) / np.sqrt(expected[keep])
    if len(residual) < 3 or used.shape[1] < 2:
        return Dispersion(independent, independent)
    gram = residual @ residual.T
    count = len(residual)
    trace = float(np.trace(gram)) / (count - 1)
    # Residuals sum to zero, which shifts the products of different windows by a constant.
    apart = gram[~np.eye(count, dtype=bool)]
    squares = float(np.var(apart)) * count / (count - 1)
    if trace <= independent:
        return Dispersion(independent, independent)
    freedom = min(max(1.0, trace**2 / max(squares, 1e-9)), independent)
    # Windows that follow each other may be alike, as latencies under a slow load are: then
    # several together vary more than each by itself tells (first autocorrelation).
    alike = float(np.diagonal(gram, 1).mean() / (np.trace(gram) / count)) + 1 / count
    return Dispersion(trace * (1 + 2 * max(0.0, alike)), freedom, freedom * (count - 1))


def psi(reference: IntArray, current: IntArray) -> float:
    """Population stability index of counts by group: Σ (p - q) ln(p / q), smoothed by 0.5."""
    p = (reference + SMOOTHING) / (reference.sum() + SMOOTHING * len(reference))
    q = (current + SMOOTHING) / (current.sum() + SMOOTHING * len(current))
    return float(np.sum((p - q) * np.log(p / q)))


def g_statistic(reference: IntArray, current: IntArray) -> float:
    """Two-sample likelihood ratio statistic of counts by group: χ²(B-1) without a difference."""
    both = reference + current
    result = 0.0
    for counts in (reference, current):
        expected = both * (counts.sum() / max(1, both.sum()))
        seen = counts > 0
        result += 2 * float(np.sum(counts[seen] * np.log(counts[seen] / expected[seen])))
    return result


def chi2_statistic(reference: IntArray, current: IntArray) -> float:
    """Pearson's two-sample statistic of the same table."""
    both = reference + current
    used = both > 0
    result = 0.0
    for counts in (reference, current):
        expected = both[used] * (counts.sum() / max(1, both.sum()))
        result += float(np.sum((counts[used] - expected) ** 2 / np.maximum(expected, 1e-12)))
    return result


def jensen_shannon(reference: IntArray, current: IntArray) -> float:
    """Jensen-Shannon divergence of two histograms, in bits: 0 to 1."""
    p = reference / max(1, reference.sum())
    q = current / max(1, current.sum())
    middle = (p + q) / 2
    return float(sum(_relative(side, middle) for side in (p, q)) / 2)


def _relative(p: FloatArray, q: FloatArray) -> float:
    seen = p > 0
    return float(np.sum(p[seen] * np.log2(p[seen] / q[seen])))


def kolmogorov_smirnov(reference: IntArray, current: IntArray) -> float:
    """Largest difference of the two cumulative shares, at the edges of the bins."""
    return float(np.max(np.abs(_cumulated(reference) - _cumulated(current))))


def wasserstein(reference: IntArray, current: IntArray, edges: FloatArray) -> float:
    """Wasserstein distance of two histograms over the reference's standard deviation.

    Args:
        reference: counts, [bins].
        current: counts, [bins].
        edges: upper edges, [bins - 1]; what is above the last counts as on it.
    """
    points = np.append(edges, edges[-1])
    share = reference / max(1, reference.sum())
    mean = float(share @ points)
    sigma = float(np.sqrt(share @ (points - mean) ** 2))
    gap = np.abs(_cumulated(reference) - _cumulated(current))[:-1]
    distance = float(gap @ np.diff(points))
    return distance / sigma if sigma > 0 else (0.0 if distance == 0 else float("inf"))


def _cumulated(counts: IntArray) -> FloatArray:
    return np.cumsum(counts) / max(1, int(counts.sum()))


def holm(p_values: list[float], alpha: float) -> list[bool]:
    """Which hypotheses fall when all together may err with chance ``alpha`` (Holm 1979)."""
    order = np.argsort(p_values)
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected
