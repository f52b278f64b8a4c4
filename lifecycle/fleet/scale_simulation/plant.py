"""A model of a fleet under load, one second a step: enough to judge a scaling rule by.

Requests arrive as a Poisson process and wait in one queue. A replica runs up to ``slots`` of
them, each for its own time, whatever else runs: continuous batching slows down little before
it is full. A new replica takes requests after ``start_seconds`` (load, verify, warm up); one
that leaves ends what it runs. A full fleet refuses.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass

from lifecycle.fleet.autoscale import FleetLoad


@dataclass(frozen=True)
class PlantFacts:
    """What the modelled hardware can do.

    Attributes:
        slots: requests that one replica runs at once.
        queue_per_replica: requests that may wait for each replica that takes any.
        start_seconds: from the decision to the first request.
        least_seconds, mean_seconds: a request runs for the least time plus an
            exponentially distributed rest.
        first_token_seconds: from its slot to its first token.
        weights_share, kv_share: parts of a device's memory, so that the article's
            thresholds have something to look at.
    """

    slots: int = 16
    queue_per_replica: int = 64
    start_seconds: int = 40
    least_seconds: float = 2.0
    mean_seconds: float = 8.0
    first_token_seconds: float = 0.3
    weights_share: float = 0.35
    kv_share: float = 0.6


class _Replica:
    def __init__(self, ready_at: int) -> None:
        self.ready_at = ready_at
        self.ends: list[float] = []
        self.leaving = False


class Plant:
    """The modelled fleet.

    Args:
        facts: of the hardware.
        seed: of arrivals and durations.
        replicas: that are ready at the start.
    """

    def __init__(self, facts: PlantFacts, seed: int, replicas: int) -> None:
        self._facts = facts
        self._random = random.Random(seed)
        self._replicas = [_Replica(0) for _ in range(replicas)]
        self._queue: deque[float] = deque()
        self._first_tokens: deque[tuple[float, float]] = deque()
        self._busy_seconds = 0.0
        self.now = 0
        self.arrived = self.refused = self.late = 0
        self.late_goal_seconds = math.inf

    @property
    def replicas(self) -> int:
        """Replicas that exist and are not on their way out."""
        return sum(not replica.leaving for replica in self._replicas)

    @property
    def ready(self) -> int:
        """Replicas that take requests."""
        return len(self._takers())

    @property
    def waited_seconds(self) -> float:
        """How long the request at the head of the queue has waited."""
        return self.now - self._queue[0] if self._queue else 0.0

    def scale(self, target: int) -> None:
        """Start replicas, or let the youngest leave, until ``target`` remain."""
        while self.replicas < target:
            self._replicas.append(_Replica(self.now + self._facts.start_seconds))
        staying = [replica for replica in self._replicas if not replica.leaving]
        for replica in staying[target:]:
            replica.leaving = True

    def step(self, rate: float) -> None:
        """One second with ``rate`` requests per second on average."""
        self.now += 1
        for replica in self._replicas:
            replica.ends = [end for end in replica.ends if end > self.now]
        self._replicas = [r for r in self._replicas if r.ends or not r.leaving]
        self._arrive(rate)
        self._place()

    def observe(self) -> FleetLoad:
        """What the sensor would see now."""
        takers = self._takers()
        running = sum(len(replica.ends) for replica in self._replicas)
        fill = running / (self._facts.slots * max(1, len(takers)))
        return FleetLoad(
            replicas=self.replicas,
            ready=len(takers),
            running=running,
            waiting=len(self._queue),
            kv_usage=max((len(r.ends) / self._facts.slots for r in takers), default=0.0) * 0.95,
            ttft_p95_seconds=self._ttft_p95(),
            gpu_util=min(1.0, fill),
            gpu_memory=self._facts.weights_share + self._facts.kv_share * min(1.0, fill),
        )

    def _takers(self) -> list[_Replica]:
        return [r for r in self._replicas if not r.leaving and r.ready_at <= self.now]

    def _arrive(self, rate: float) -> None:
        room = self._facts.queue_per_replica * self.ready
        clock = self._random.expovariate(rate) if rate > 0 else math.inf
        while clock < 1.0:
            self.arrived += 1
            if len(self._queue) < room:
                self._queue.append(self.now - 1 + clock)
            else:
                self.refused += 1
            clock += self._random.expovariate(rate)

    def _place(self) -> None:
        facts = self._facts
        takers = self._takers()
        while self._queue:
            least = min(takers, key=lambda replica: len(replica.ends), default=None)
            if least is None or len(least.ends) >= facts.slots:
                return
            waited = max(0.0, self.now - 1 - self._queue.popleft())
            rest = self._random.expovariate(1 / (facts.mean_seconds - facts.least_seconds))
            least.ends.append(self.now + facts.least_seconds + rest)
            first = waited + facts.first_token_seconds
            self._first_tokens.append((self.now, first))
            self.late += first > self.late_goal_seconds

    def _ttft_p95(self) -> float | None:
        while self._first_tokens and self._first_tokens[0][0] < self.now - 30:
            self._first_tokens.popleft()
        times = sorted(first for _, first in self._first_tokens)
        if not times:
            return self.waited_seconds or None
        return times[min(len(times) - 1, math.ceil(0.95 * len(times)) - 1)]
