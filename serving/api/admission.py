"""How many requests may be in the system at once, and when a refused one should return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from prometheus_client import Counter

from serving.api.errors import ApiError

MEAN_WEIGHT = 0.2
"""Weight of the newest request in the moving mean of their durations."""
FIRST_GUESS_SECONDS = 2.0
LONGEST_RETRY_SECONDS = 60.0
OVERLOADED = "x-overloaded"
"""Response header by which the proxy tells a full replica from a broken one."""


@dataclass
class _Load:
    in_system: int = 0
    mean_seconds: float = FIRST_GUESS_SECONDS


class Admission:
    """Bound the sequences that run or wait, by model.

    Args:
        max_in_system: most sequences per model; those above it are refused with 429.
        rejections: counts those, by model and reason.
        behind_proxy: refuse with 503 and the header `OVERLOADED` instead, which asks the
            proxy to send the request to another replica.
    """

    def __init__(
        self, max_in_system: int, rejections: Counter, *, behind_proxy: bool = False
    ) -> None:
        self._max_in_system = max_in_system
        self._rejections = rejections
        self._behind_proxy = behind_proxy
        self._loads: dict[str, _Load] = {}

    @contextmanager
    def admit(self, model: str, places: int, *, param: str) -> Iterator[None]:
        """Hold ``places`` in the system until the block ends.

        Args:
            model: registry name of a model that is served.
            places: sequences the request starts.
            param: field that a request too big for the whole system names.

        Raises:
            ApiError: full (429, or 503, with ``Retry-After``), or never admissible (400).
        """
        if places > self._max_in_system:
            raise ApiError(
                400,
                f"the request asks for {places} sequences and this server takes"
                f" {self._max_in_system} at once; send fewer",
                param=param,
                code="too_many_sequences",
            )
        load = self._loads.setdefault(model, _Load())
        if load.in_system + places > self._max_in_system:
            self._rejections.labels(model, "full").inc()
            raise ApiError(
                503 if self._behind_proxy else 429,
                f"the server is full ({load.in_system} requests run or wait);"
                " retry after the time given in Retry-After",
                type="requests",
                code="rate_limit_exceeded",
                retry_after=self._retry_seconds(load),
                headers={OVERLOADED: "1"} if self._behind_proxy else None,
            )
        load.in_system += places
        started = monotonic()
        try:
            yield
            # Not reached by a request that failed or was hung up on.
            load.mean_seconds += MEAN_WEIGHT * (monotonic() - started - load.mean_seconds)
        finally:
            load.in_system -= places

    def _retry_seconds(self, load: _Load) -> float:
        """Time in which half of the requests now in the system have left it.

        By Little's law, requests leave at ``in_system / mean_seconds`` per second. A retry
        at the very moment that one place is free would find it taken by the others refused.
        """
        return min(LONGEST_RETRY_SECONDS, load.mean_seconds / 2)
