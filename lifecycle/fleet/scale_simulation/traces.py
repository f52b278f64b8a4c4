"""Seeded load traces: requests per second over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

HOUR = 3600
MINUTE = 60


@dataclass(frozen=True)
class Trace:
    """One shape of load.

    Attributes:
        name: what it is called in tables and files.
        seconds: how long it lasts.
        rate: mean requests per second at a second of it.
    """

    name: str
    seconds: int
    rate: Callable[[int], float]


def _step(t: int) -> float:
    return 8.0 if 20 * MINUTE <= t < 60 * MINUTE else 1.0


def _ramp(t: int) -> float:
    up = min(1.0, t / (40 * MINUTE))
    down = max(0.0, (t - 60 * MINUTE) / (40 * MINUTE))
    return 0.5 + 9.5 * max(0.0, up - down)


def _sawtooth(t: int) -> float:
    return 1.0 + 7.0 * (t % (20 * MINUTE)) / (20 * MINUTE)


def _diurnal(t: int) -> float:
    # One day in four hours: the slopes are six times as steep as in life.
    return 0.5 + 8.5 * math.sin(math.pi * t / (4 * HOUR)) ** 2


def _spike(t: int) -> float:
    return 12.0 if 30 * MINUTE <= t < 32 * MINUTE else 1.5


TRACES: Mapping[str, Trace] = {
    trace.name: trace
    for trace in (
        Trace("step", 90 * MINUTE, _step),
        Trace("ramp", 110 * MINUTE, _ramp),
        Trace("sawtooth", 2 * HOUR, _sawtooth),
        Trace("diurnal", 4 * HOUR, _diurnal),
        Trace("spike", 75 * MINUTE, _spike),
    )
}
