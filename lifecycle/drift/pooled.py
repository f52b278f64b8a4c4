"""Comparing pooled token vectors: by their means, and by kernel between windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle.drift.statistics import Dispersion, FloatArray
from lifecycle.drift.windows import Window

RIDGE = 1e-3
"""Added to the covariance, relative to its mean variance: directions may have none at all."""
PERMUTATIONS = 499


@dataclass(frozen=True)
class MeanShift:
    """How far the mean moved.

    Attributes:
        squared: squared Mahalanobis distance. For two normal distributions of one covariance it
            is what the PSI is, the symmetric Kullback-Leibler divergence, so that the same
            effect floor holds.
        dispersion: of the statistic ``squared / (1/n + 1/m)`` by chance.
    """

    squared: float
    dispersion: Dispersion


def mean_shift(reference: list[Window], current: list[Window], name: str) -> MeanShift:
    """Compare means in the covariance of the reference's requests (Hotelling's T²)."""
    size = sum(window.requests for window in reference)
    mean = _mean(reference, name)
    products = np.sum([window.products[name] for window in reference], axis=0)
    covariance = products / max(1, size) - np.outer(mean, mean)
    dimensions = len(mean)
    ridge = RIDGE * max(float(np.trace(covariance)) / dimensions, 1.0)
    inverse = np.linalg.inv(covariance + ridge * np.eye(dimensions))
    # Requests of one window may be alike; how much, the windows of the reference show.
    between = [
        window.requests * _squared(_mean([window], name) - mean, inverse) for window in reference
    ]
    apart = max(1, len(reference) - 1)
    trace = float(np.sum(between)) / apart
    chance = Dispersion(dimensions, dimensions)
    if trace > dimensions:
        chance = Dispersion(trace, dimensions, dimensions * apart)
    return MeanShift(_squared(_mean(current, name) - mean, inverse), chance)


def permutation_mmd(
    reference: list[Window], current: list[Window], name: str, seed: int = 0
) -> tuple[float, float]:
    """Squared maximum mean discrepancy between windows, and its p-value by permutation.

    Gaussian kernel on the windows' mean vectors, its width the median distance (Gretton et al.
    2012, JMLR 13). With few windows the p-value is coarse: it is shown, and alarms nothing.
    """
    points = np.array([_mean([window], name) for window in [*reference, *current]])
    squared = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    width = float(np.median(squared[squared > 0])) if (squared > 0).any() else 1.0
    kernel = np.exp(-squared / width)
    count, generator = len(current), np.random.default_rng(seed)
    seen = _mmd(kernel, np.arange(len(points)) >= len(reference))
    hits = 0
    for _ in range(PERMUTATIONS):
        chosen = np.zeros(len(points), dtype=bool)
        chosen[generator.choice(len(points), count, replace=False)] = True
        hits += _mmd(kernel, chosen) >= seen
    return seen, (hits + 1) / (PERMUTATIONS + 1)


def _mmd(kernel: FloatArray, current: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    ours, others = kernel[current][:, current], kernel[~current][:, ~current]
    return float(ours.mean() + others.mean() - 2 * kernel[current][:, ~current].mean())


def _mean(windows: list[Window], name: str) -> FloatArray:
    size = sum(window.requests for window in windows)
    summed: FloatArray = np.sum([window.sums[name] for window in windows], axis=0) / max(1, size)
    return summed


def _squared(vector: FloatArray, inverse: FloatArray) -> float:
    return float(vector @ inverse @ vector)
