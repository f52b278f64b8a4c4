"""Made-up traffic with what makes real traffic hard: topics, load that comes and goes, repeats.

Requests of one topic share their words, so that counts of tokens are clustered; latency
follows a load that changes slowly, so that neighbours are alike. Seeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from serving.telemetry.signals import IntArray
from serving.telemetry.sketches import Observation, Sketches, Stream

VOCABULARY = 49_152
TOPICS = 12
TOPIC_WORDS = 400
STREAM = Stream("synthetic", "0" * 64, "/v1/chat/completions", "default")


@dataclass(frozen=True)
class Traffic:
    """What requests are like."""

    prompt_tokens: float = 120.0
    """Median; log-normal with sigma 0.8."""
    output_tokens: float = 60.0
    latency: float = 1.0
    """Factor on every time."""
    other_language: float = 0.03
    """Share of requests in another language: other script, other words."""
    looping: float = 0.02
    """Share of answers that repeat themselves."""


SHIFTS = {
    "length": lambda traffic: replace(traffic, prompt_tokens=traffic.prompt_tokens * 1.5),
    "language": lambda traffic: replace(traffic, other_language=0.5),
    "repetition": lambda traffic: replace(traffic, looping=0.3),
    "latency": lambda traffic: replace(traffic, latency=traffic.latency * 2),
}


class Source:
    """An endless stream of sequences as they ended."""

    def __init__(self, seed: int, traffic: Traffic | None = None) -> None:
        self.traffic = traffic or Traffic()
        self._chance = np.random.default_rng(seed)
        # The world is the same for every seed; what is asked is not.
        world = np.random.default_rng(20_260_101)
        self._words = world.integers(0, VOCABULARY, (2, TOPICS, TOPIC_WORDS))
        self._common = world.integers(0, VOCABULARY, (2, TOPIC_WORDS))
        weights = 1 / np.arange(1, TOPIC_WORDS + 1)
        self._cumulated = np.cumsum(weights / weights.sum())
        self._popular = np.cumsum(world.dirichlet(np.ones(TOPICS)))
        self._load = 0.0

    def __iter__(self) -> Iterator[Observation]:
        """Draw the next sequences."""
        while True:
            yield self._draw()

    def _draw(self) -> Observation:
        chance, traffic = self._chance, self.traffic
        foreign = int(chance.random() < traffic.other_language)
        topic = min(int(np.searchsorted(self._popular, chance.random())), TOPICS - 1)
        prompt = self._tokens(foreign, topic, traffic.prompt_tokens, 0.8)
        output = self._tokens(foreign, topic, traffic.output_tokens, 0.6)
        if chance.random() < traffic.looping and len(output) > 16:
            output = np.tile(output[:8], len(output) // 8 + 1)[: len(output)]
        # Load drifts to and fro over some tens of requests.
        self._load = 0.97 * self._load + 0.06 * chance.standard_normal()
        slow = traffic.latency * np.exp(self._load)
        token = 0.02 * slow * np.exp(0.1 * chance.standard_normal())
        ttft = (0.03 + 0.0004 * len(prompt)) * slow * np.exp(0.2 * chance.standard_normal())
        script = "han" if foreign else "latin"
        failed = chance.random() < 0.005
        return Observation(
            prompt.tolist(),
            output.tolist(),
            prompt_script=script,
            output_script=script,
            outcome="error" if failed else "ok",
            finish_reason=None if failed else "length" if chance.random() < 0.1 else "stop",
            latency_seconds=float(ttft + token * len(output)),
            ttft_seconds=float(ttft),
            token_seconds=float(token),
        )

    def _tokens(self, foreign: int, topic: int, median: float, sigma: float) -> IntArray:
        length = int(np.clip(median * np.exp(sigma * self._chance.standard_normal()), 1, 2000))
        rank = np.searchsorted(self._cumulated, self._chance.random(length))
        rank = np.minimum(rank, TOPIC_WORDS - 1)
        own = self._chance.random(length) < 0.5
        ids: IntArray = np.where(
            own, self._words[foreign, topic][rank], self._common[foreign][rank]
        )
        return ids


def sketched(source: Source, requests: int) -> dict[str, object]:
    """Pass so many sequences through the real sketches and show them as a replica does."""
    sketches = Sketches(clock=Clock())
    for seen, _ in zip(source, range(requests), strict=False):
        sketches.add(STREAM, seen)
    return sketches.as_json()


class Clock:
    """A tenth of a second goes by at every look."""

    def __init__(self) -> None:
        self._now = 1_764_000_000.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        self._now += 0.1
        return self._now
