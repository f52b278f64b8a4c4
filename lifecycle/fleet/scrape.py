"""The few numbers of a replica's ``/metrics`` that decisions are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

Buckets = tuple[tuple[float, float], ...]
"""A cumulative histogram: upper bound in seconds (the last is infinite), count below it."""


@dataclass(frozen=True)
class ReplicaLoad:
    """How busy a replica is; counts are sums over its models.

    Attributes:
        running: sequences in the batch.
        waiting: sequences that wait for a slot.
        kv_usage: of the fullest KV cache, 0 to 1.
        ttft: time to first token of every request since the replica started, cumulative.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    ttft: Buckets = ()

    @property
    def in_system(self) -> int:
        """Sequences that run or wait."""
        return self.running + self.waiting


def parse_load(text: str) -> ReplicaLoad:
    """Read a replica's metrics; what is missing counts as nothing.

    Raises:
        ValueError: the text is not in Prometheus' format.
    """
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return ReplicaLoad(
        running=int(sum(_values(families, "ironworks_num_requests_running"))),
        waiting=int(sum(_values(families, "ironworks_num_requests_waiting"))),
        kv_usage=max(_values(families, "ironworks_kv_cache_usage_perc"), default=0.0),
        ttft=_buckets(families.get("ironworks_time_to_first_token_seconds")),
    )


def quantile(buckets: Buckets, q: float, *, since: Buckets = ()) -> float | None:
    """Estimate a quantile, linear within a bucket, as Prometheus' ``histogram_quantile``.

    Args:
        buckets: the histogram now.
        q: 0 to 1.
        since: the same histogram earlier: only what came after it counts. One with other
            bounds or larger counts (the replica was restarted) is ignored.

    Returns:
        Seconds; the largest finite bound where the quantile lies beyond it; None without
        any observation.
    """
    counts = _difference(buckets, since)
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    rank = q * total
    lower, below = 0.0, 0.0
    for bound, count in counts:
        if count >= rank and count > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = (lower if math.isinf(bound) else bound), count
    return lower


def merge(histograms: Iterable[Buckets]) -> Buckets:
    """Add histograms of the same bounds; others than the first one's are left out."""
    total: Buckets = ()
    for histogram in histograms:
        if not total:
            total = histogram
        elif _bounds(total) == _bounds(histogram):
            total = tuple((b, n + m) for (b, n), (_, m) in zip(total, histogram, strict=True))
    return total


def _values(families: Mapping[str, Metric], name: str) -> list[float]:
    family = families.get(name)
    return [] if family is None else [float(sample.value) for sample in family.samples]


def _buckets(family: Metric | None) -> Buckets:
    counts: dict[float, float] = {}
    for sample in family.samples if family is not None else ():
        if sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + float(sample.value)
    return tuple(sorted(counts.items()))


def _difference(now: Buckets, since: Buckets) -> Sequence[tuple[float, float]]:
    if _bounds(now) != _bounds(since):
        return now
    left = [(bound, n - m) for (bound, n), (_, m) in zip(now, since, strict=True)]
    return now if any(count < 0 for _, count in left) else left


def _bounds(buckets: Buckets) -> tuple[float, ...]:
    return tuple(bound for bound, _ in buckets)
