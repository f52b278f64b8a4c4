"""Sketches as a replica shows them, read into arrays; and back, for a frozen reference."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from registry.canonical import Json

IntArray = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class StreamKey:
    """Requests that belong together: compared with one another, never with others."""

    model: str
    digest: str
    route: str
    tenant: str


@dataclass(frozen=True)
class Signals:
    """How the values of each signal are divided into bins."""

    definitions: Mapping[str, Mapping[str, Any]]

    @property
    def short(self) -> str:
        """12 hex digits that change with any bin: counts over other bins can't be compared."""
        text = json.dumps(self.definitions, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def names(self, kind: str) -> list[str]:
        """Signals of that kind: ``numeric``, ``categorical`` or ``pooled``."""
        return [name for name, bins in self.definitions.items() if bins["kind"] == kind]


@dataclass(frozen=True)
class Window:
    """Sums over some consecutive requests of one stream."""

    opened_us: int
    closed_us: int
    requests: int
    counts: Mapping[str, IntArray]
    """By signal, [bins]."""
    sums: Mapping[str, IntArray]
    """By pooled signal, [dimensions]."""
    products: Mapping[str, IntArray]
    """By pooled signal, [dimensions, dimensions]."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Window:
        """Read what ``GET /sketches`` or a frozen reference holds."""

        def arrays(name: str) -> dict[str, IntArray]:
            return {key: np.array(item, dtype=np.int64) for key, item in value[name].items()}

        return cls(
            value["opened_us"],
            value["closed_us"],
            value["requests"],
            arrays("counts"),
            arrays("sums"),
            arrays("products"),
        )

    def as_json(self) -> dict[str, Json]:
        """Whole numbers only, so that the registry can keep it."""
        return {
            "opened_us": self.opened_us,
            "closed_us": self.closed_us,
            "requests": self.requests,
            "counts": {name: array.tolist() for name, array in self.counts.items()},
            "sums": {name: array.tolist() for name, array in self.sums.items()},
            "products": {name: array.tolist() for name, array in self.products.items()},
        }


def streams_of(
    sketches: Iterable[Mapping[str, Any]],
) -> tuple[Signals, dict[StreamKey, list[Window]]]:
    """Bring the sketches of several replicas together; windows in the order of their end.

    A replica whose bins differ from the first one's (another release, in the middle of a
    rolling update) is left out.
    """
    signals: Signals | None = None
    streams: dict[StreamKey, list[Window]] = {}
    for one in sketches:
        found = Signals(one["signals"])
        if signals is None:
            signals = found
        if found.short != signals.short:
            continue
        for stream in one["streams"]:
            key = StreamKey(stream["model"], stream["digest"], stream["route"], stream["tenant"])
            streams.setdefault(key, []).extend(map(Window.from_json, stream["windows"]))
    for windows in streams.values():
        windows.sort(key=lambda window: window.closed_us)
    return signals or Signals({}), streams


def total(windows: Iterable[Window], name: str) -> IntArray:
    """Counts of one signal over all windows."""
    summed: IntArray = np.sum([window.counts[name] for window in windows], axis=0)
    return summed


def groups_from_newest(windows: list[Window], requests: int) -> list[list[Window]]:
    """Divide into disjoint groups of at least ``requests``, counted from the newest backwards.

    Returns:
        Groups, oldest first; what is left over at the old end is in none.
    """
    groups: list[list[Window]] = []
    group: list[Window] = []
    for window in reversed(windows):
        group.insert(0, window)
        if sum(item.requests for item in group) >= requests:
            groups.insert(0, group)
            group = []
    return groups
