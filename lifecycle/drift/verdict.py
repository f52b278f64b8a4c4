"""From two sets of windows to a verdict. Pure: no registry, no Dagster, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lifecycle.drift import statistics as stats
from lifecycle.drift.pooled import mean_shift
from lifecycle.drift.windows import IntArray, Signals, Window, total

Outcome = Literal["ok", "warn", "alarm", "insufficient_data"]


@dataclass(frozen=True)
class Rule:
    """When a difference is an alarm.

    Attributes:
        floor: effect (PSI) below which a difference is too small to matter.
        confidence: of each signal's own threshold.
        alpha: chance of an error of all signals of one judgement together (Holm).
        judged_requests: requests in one judgement.
        k: a signal alarms when it was beyond its threshold in so many of
        n: the newest judgements.
        reference_requests: requests that a reference is frozen from.
    """

    floor: float = 0.1
    confidence: float = 0.99
    alpha: float = 0.01
    judged_requests: int = 200
    k: int = 2
    n: int = 3
    reference_requests: int = 1000


@dataclass(frozen=True)
class SignalResult:
    """One signal of one judgement."""

    name: str
    effect: float
    """PSI; for pooled vectors the squared Mahalanobis distance of the means."""
    threshold: float
    p_value: float
    beyond: bool
    """Above the threshold, and significant among all signals."""
    ks: float | None = None
    wasserstein: float | None = None
    """In standard deviations of the reference."""
    jensen_shannon: float | None = None
    g: float | None = None
    chi2: float | None = None


@dataclass(frozen=True)
class Judgement:
    """One group of windows against a reference."""

    requests: int
    closed_us: int
    signals: tuple[SignalResult, ...]

    @property
    def beyond(self) -> tuple[str, ...]:
        """Signals beyond their thresholds."""
        return tuple(signal.name for signal in self.signals if signal.beyond)


@dataclass(frozen=True)
class Verdict:
    """What came out, and why in words."""

    outcome: Outcome
    signals: tuple[str, ...]
    reason: str


def judge(
    signals: Signals, reference: list[Window], current: list[Window], rule: Rule
) -> Judgement:
    """Compare every signal that both sides have seen."""
    results = []
    for kind, compare in (("numeric", _binned), ("categorical", _binned), ("pooled", _pooled)):
        for name in signals.names(kind):
            result = compare(signals, reference, current, name, rule)
            if result is not None:
                results.append(result)
    significant = stats.holm([result.p_value for result in results], rule.alpha)
    return Judgement(
        sum(window.requests for window in current),
        max(window.closed_us for window in current),
        tuple(
            SignalResult(**{**vars(result), "beyond": result.beyond and falls})
            for result, falls in zip(results, significant, strict=True)
        ),
    )


def decide(judgements: list[Judgement], rule: Rule) -> Verdict:
    """Join the newest judgements, oldest first, to a verdict: k of n before an alarm."""
    if not judgements:
        return Verdict("insufficient_data", (), f"fewer than {rule.judged_requests} requests")
    newest = judgements[-rule.n :]
    times = Counter(name for judgement in newest for name in judgement.beyond)
    alarms = tuple(name for name, count in times.items() if count >= rule.k)
    if alarms:
        seen = ", ".join(f"{name} in {times[name]}" for name in alarms)
        return Verdict("alarm", alarms, f"of the newest {len(newest)} judgements: {seen}")
    if newest[-1].beyond:
        names = newest[-1].beyond
        return Verdict("warn", names, f"once so far: {', '.join(names)}")
    return Verdict("ok", (), "no signal is beyond its threshold")


def _binned(
    signals: Signals, reference: list[Window], current: list[Window], name: str, rule: Rule
) -> SignalResult | None:
    before, now = total(reference, name), total(current, name)
    if not before.sum() or not now.sum():
        return None
    numeric = signals.definitions[name]["kind"] == "numeric"
    group = (stats.groups_by_quantile if numeric else stats.groups_by_share)(before)
    windows = stats.grouped(np.array([window.counts[name] for window in reference]), group)
    p, q = stats.grouped(before, group), stats.grouped(now, group)
    spread = stats.dispersion(windows)
    noise = 1 / before.sum() + 1 / now.sum()
    effect, g = stats.psi(p, q), stats.g_statistic(p, q)
    threshold = max(rule.floor, spread.quantile(rule.confidence) * noise)
    return SignalResult(
        name,
        effect,
        threshold,
        spread.p_value(g),
        effect > threshold,
        ks=stats.kolmogorov_smirnov(before, now) if numeric else None,
        wasserstein=_wasserstein(signals, name, before, now) if numeric else None,
        jensen_shannon=stats.jensen_shannon(before, now),
        g=g,
        chi2=stats.chi2_statistic(p, q),
    )


def _wasserstein(signals: Signals, name: str, before: IntArray, now: IntArray) -> float:
    edges = np.array(signals.definitions[name]["edges"], dtype=np.float64)
    return stats.wasserstein(before, now, edges)


def _pooled(
    signals: Signals, reference: list[Window], current: list[Window], name: str, rule: Rule
) -> SignalResult | None:
    shift = mean_shift(reference, current, name)
    noise = 1 / sum(w.requests for w in reference) + 1 / sum(w.requests for w in current)
    threshold = max(rule.floor, shift.dispersion.quantile(rule.confidence) * noise)
    p_value = shift.dispersion.p_value(shift.squared / noise)
    return SignalResult(name, shift.squared, threshold, p_value, shift.squared > threshold)
