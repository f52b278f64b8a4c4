"""The statistics against scipy's and against what theory says of chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats as reference

from lifecycle.drift import statistics as stats

COUNTS = arrays(np.int64, 12, elements=st.integers(0, 500)).filter(lambda a: a.sum() > 0)
CHANCE = np.random.default_rng(3)


@given(COUNTS, COUNTS)
def test_they_agree_with_scipy(before: np.ndarray, now: np.ndarray) -> None:
    used = (before + now) > 0
    if used.sum() < 2:
        return
    table = np.array([before[used], now[used]])
    for ours, kind in ((stats.g_statistic, "log-likelihood"), (stats.chi2_statistic, "pearson")):
        theirs = reference.chi2_contingency(table, correction=False, lambda_=kind).statistic
        assert ours(before, now) == pytest.approx(theirs, abs=1e-6)
    values = np.arange(12)
    distance = reference.wasserstein_distance(values, values, before, now)
    sigma = np.sqrt(np.average((values - np.average(values, weights=before)) ** 2, weights=before))
    if sigma > 0:
        edges = np.append(values[:-1], 11).astype(float)[:11]
        ours_distance = stats.wasserstein(before[:], now[:], edges)
        assert ours_distance >= 0
        if before[11] == now[11] == 0:
            assert ours_distance == pytest.approx(distance / sigma, abs=1e-9)
    one, other = np.repeat(values, before), np.repeat(values, now)
    assert stats.kolmogorov_smirnov(before, now) == pytest.approx(
        reference.ks_2samp(one, other).statistic, abs=1e-9
    )


@given(COUNTS, COUNTS)
def test_a_distance_is_zero_for_the_same_and_never_negative(
    before: np.ndarray, now: np.ndarray
) -> None:
    for distance in (stats.psi, stats.jensen_shannon, stats.g_statistic, stats.kolmogorov_smirnov):
        assert distance(before, before) == pytest.approx(0, abs=1e-9)
        assert distance(before, now) >= -1e-9
    assert stats.jensen_shannon(before, now) <= 1 + 1e-9


@given(COUNTS)
def test_quantile_groups_are_ordered_and_without_gaps(counts: np.ndarray) -> None:
    group = stats.groups_by_quantile(counts)
    filled = group[counts > 0]
    assert (np.diff(filled) >= 0).all()
    assert set(filled) == set(range(int(filled.max()) + 1)) and filled.max() < stats.QUANTILES
    assert set(group[counts == 0]) <= {filled.max() + 1}


def test_leaving_the_only_value_there_was_is_seen() -> None:
    before, now = np.array([0, 0, 1000, 0]), np.array([0, 0, 0, 200])
    group = stats.groups_by_quantile(before)
    assert stats.psi(stats.grouped(before, group), stats.grouped(now, group)) > 1


def draws(windows: int, size: int, clusters: int) -> np.ndarray:
    """Windows of counts in eight bins; ``clusters`` equal tokens come together."""
    share = np.full(8, 1 / 8)
    return CHANCE.multinomial(size // clusters, share, size=windows) * clusters


@pytest.mark.parametrize("clusters", [1, 10])
def test_chance_exceeds_the_threshold_as_rarely_as_it_says(clusters: int) -> None:
    beyond = 0
    for _ in range(1000):
        windows = draws(10, 400, clusters)
        before, now = windows.sum(axis=0), draws(2, 400, clusters).sum(axis=0)
        spread = stats.dispersion(windows)
        noise = 1 / before.sum() + 1 / now.sum()
        beyond += stats.psi(before, now) > spread.quantile(0.99) * noise
    # 1 % of 1000, and what chance does to that count itself (binomial, 4 sigma).
    assert beyond <= 23


def test_independent_counts_have_the_degrees_of_freedom_of_the_textbook() -> None:
    spread = stats.dispersion(draws(400, 400, 1))
    assert spread.trace == pytest.approx(7, rel=0.15)
    assert spread.freedom == pytest.approx(7, rel=0.15)
    clustered = stats.dispersion(draws(400, 400, 10))
    assert clustered.trace == pytest.approx(70, rel=0.15)


def test_holm_stops_at_the_first_that_stands() -> None:
    assert stats.holm([0.03, 0.001, 0.02], 0.05) == [True, True, True]
    assert stats.holm([0.04, 0.001, 0.03], 0.05) == [False, True, False]
    assert stats.holm([], 0.05) == []
