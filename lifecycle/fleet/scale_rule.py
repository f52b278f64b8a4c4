"""The bounds and constants of the scale decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleRule:
    """The bounds and constants of the decision; shares are 0 to 1, times seconds.

    Attributes:
        target_per_replica: requests in the system that one replica should hold; three
            quarters of its 16 slots leave room for the load to grow while a replica starts.
        min_replicas, max_replicas: never fewer, never more.
        devices_per_replica: GPUs that one replica needs.
        ttft_goal_seconds: bound on the 95th percentile of the time to first token.
        tolerance: a load this close to the target changes nothing.
        down_headroom: share of the capacity that must be free after shrinking.
        rising: a load whose mean over the last third of the down-window is this multiple of
            that over the first third is on its way up: nothing is given up then.
        up_window_seconds, down_window_seconds: how long a wish must last.
        up_cooldown_seconds: rest after a change before growing again.
        down_cooldown_seconds: rest after any change before shrinking.
        step_up: most replicas added at once, or doubling if that is more.
        step_down_share: largest share of the replicas that is given up at once.
        kv_high, util_high, memory_high, util_low, memory_low: bounds of the other signals.
    """

    target_per_replica: float = 12.0
    min_replicas: int = 1
    max_replicas: int = 1
    devices_per_replica: int = 1
    ttft_goal_seconds: float = 2.0
    tolerance: float = 0.1
    down_headroom: float = 0.25
    rising: float = 1.1
    up_window_seconds: float = 15.0
    down_window_seconds: float = 300.0
    up_cooldown_seconds: float = 60.0
    down_cooldown_seconds: float = 600.0
    step_up: int = 4
    step_down_share: float = 0.34
    kv_high: float = 0.9
    util_high: float = 0.8
    memory_high: float = 0.9
    util_low: float = 0.3
    memory_low: float = 0.5
