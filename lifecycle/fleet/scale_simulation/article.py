"""The article's scaling rules, to be run beside ours (ledger L43, L44)."""

from __future__ import annotations

from lifecycle.fleet.autoscale import FleetLoad
from lifecycle.fleet.scale_rule import ScaleRule


def formula(load: FleetLoad, rule: ScaleRule) -> int:
    """``target = max(1, int(concurrency · 1.5) − replicas)``, as printed, within the bounds.

    It subtracts replicas from requests, and yields a difference that is used as a total:
    8 requests on 12 replicas give 1, and 8 requests on that one give 11.
    """
    target = max(1, int(load.in_system * 1.5) - load.replicas)
    return min(max(target, rule.min_replicas), rule.max_replicas)


def thresholds(load: FleetLoad, rule: ScaleRule) -> int:
    """One more at utilisation > 80 % and memory > 90 %, one fewer at < 30 % and < 50 %."""
    util, memory = load.gpu_util or 0.0, load.gpu_memory or 0.0
    target = load.replicas
    if util > 0.8 and memory > 0.9:
        target += 1
    elif util < 0.3 and memory < 0.5:
        target -= 1
    return min(max(target, rule.min_replicas), rule.max_replicas)
