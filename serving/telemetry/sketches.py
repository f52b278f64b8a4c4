"""What traffic looks like, in counts: never a prompt, an answer, or a piece of one.

Each answered sequence is counted into the open window of its stream; a full window is closed
and kept. A window shows sums over at least ``LEAST_REQUESTS`` requests or is not shown at all.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from serving.telemetry.meter import SequenceMeter
from serving.telemetry.scripts import script_of
from serving.telemetry.signals import (
    CATEGORICAL,
    DIMENSIONS,
    NUMERIC,
    POOLED,
    IntArray,
    bucket_counts,
    definitions,
    pooled,
    repetition,
)

if TYPE_CHECKING:
    from serving.text.codec import TextCodec

WINDOW_REQUESTS = 100
WINDOW_SECONDS = 900.0
"""A window that old is closed with what it has, once that is enough to be shown."""
LEAST_REQUESTS = 20
"""A window of fewer requests could say too much about one of them; it stays open."""
KEPT_WINDOWS = 256
"""Of each stream; about 12 KB each."""
KEPT_STREAMS = 16
SCRIPT_TOKENS = 128
"""Tokens at the end of a prompt or an answer that are decoded to find its script."""

DEFAULT_TENANT = "default"
"""Tenant class of every request as long as there are no API keys."""


class Stream(NamedTuple):
    """What belongs together: a change of mix between streams is not a drift of any."""

    model: str
    digest: str
    route: str
    tenant: str


@dataclass(frozen=True)
class Observation:
    """One sequence as it ended. Lives until it is counted."""

    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    prompt_script: str
    output_script: str
    outcome: str
    finish_reason: str | None
    latency_seconds: float
    ttft_seconds: float | None
    token_seconds: float | None


def observe(
    codec: TextCodec, prompt_ids: Sequence[int], meter: SequenceMeter, unfinished: str
) -> Observation:
    """Take down one sequence as it ended.

    Args:
        codec: of the version that answered.
        prompt_ids: what it was asked.
        meter: what was measured of it.
        unfinished: outcome of one that did not end by itself: ``error`` or ``hung_up``.
    """
    output = codec.decode(meter.generated_ids[-SCRIPT_TOKENS:])
    outcome = "ok" if output.strip() else "empty"
    return Observation(
        prompt_ids,
        meter.generated_ids,
        prompt_script=script_of(codec.decode(prompt_ids[-SCRIPT_TOKENS:])),
        output_script=script_of(output),
        outcome=unfinished if meter.finish_reason is None else outcome,
        finish_reason=meter.finish_reason,
        latency_seconds=meter.seconds,
        ttft_seconds=meter.first_token_seconds,
        token_seconds=meter.token_seconds,
    )


@dataclass
class Window:
    """Sums over some consecutive requests of one stream."""

    number: int
    """Counts the stream's windows from 0."""
    opened: float
    """Unix seconds."""
    closed: float = 0.0
    requests: int = 0
    counts: dict[str, IntArray] = field(
        default_factory=lambda: (
            {name: np.zeros(len(edges) + 1, np.int64) for name, edges in NUMERIC.items()}
            | {name: np.zeros(len(bins), np.int64) for name, bins in CATEGORICAL.items()}
        )
    )
    sums: dict[str, IntArray] = field(
        default_factory=lambda: {name: np.zeros(DIMENSIONS, np.int64) for name in POOLED}
    )
    products: dict[str, IntArray] = field(
        default_factory=lambda: {
            name: np.zeros((DIMENSIONS, DIMENSIONS), np.int64) for name in POOLED
        }
    )

    def add(self, seen: Observation) -> None:
        """Count one sequence."""
        self.requests += 1
        self._number("prompt_tokens", len(seen.prompt_ids))
        self._number("output_tokens", len(seen.output_ids))
        self._number("latency_seconds", seen.latency_seconds)
        self._number("ttft_seconds", seen.ttft_seconds)
        self._number("token_seconds", seen.token_seconds)
        self._number("repetition", repetition(seen.output_ids))
        self._category("outcome", seen.outcome)
        self._category("finish_reason", seen.finish_reason or "none")
        self._category("prompt_script", seen.prompt_script)
        self._category("output_script", seen.output_script)
        self._tokens("prompt", seen.prompt_ids)
        self._tokens("output", seen.output_ids)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "number": self.number,
            "opened_us": int(self.opened * 1e6),
            "closed_us": int(self.closed * 1e6),
            "requests": self.requests,
            "counts": {name: array.tolist() for name, array in self.counts.items()},
            "sums": {name: array.tolist() for name, array in self.sums.items()},
            "products": {name: array.tolist() for name, array in self.products.items()},
        }

    def _number(self, name: str, value: float | None) -> None:
        if value is not None:
            self.counts[name][bisect_left(NUMERIC[name], value)] += 1

    def _category(self, name: str, value: str) -> None:
        self.counts[name][CATEGORICAL[name].index(value)] += 1

    def _tokens(self, side: str, token_ids: Sequence[int]) -> None:
        if not token_ids:
            return
        counts = bucket_counts(token_ids)
        vector = pooled(counts)
        self.counts[f"{side}_ids"] += counts
        self.sums[f"{side}_pooled"] += vector
        self.products[f"{side}_pooled"] += np.outer(vector, vector)


@dataclass
class _Kept:
    open: Window
    closed: deque[Window] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))


class Sketches:
    """The windows of one replica. Lives on one event loop; nothing here waits.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._streams: OrderedDict[Stream, _Kept] = OrderedDict()

    def add(self, stream: Stream, seen: Observation) -> None:
        """Count one sequence into its stream."""
        now = self._clock()
        kept = self._streams.get(stream)
        if kept is None:
            kept = self._streams[stream] = _Kept(Window(0, now))
            if len(self._streams) > KEPT_STREAMS:
                self._streams.popitem(last=False)
        self._streams.move_to_end(stream)
        # Before counting: a request after a quiet night belongs to a new window.
        self._close_if_due(kept, now)
        if not kept.open.requests:
            kept.open.opened = now
        kept.open.add(seen)
        self._close_if_due(kept, now)

    def as_json(self) -> dict[str, Any]:
        """The bins, and every closed window of every stream, oldest first."""
        now = self._clock()
        for kept in self._streams.values():
            self._close_if_due(kept, now)
        return {
            "signals": definitions(),
            "streams": [
                {**stream._asdict(), "windows": [window.as_json() for window in kept.closed]}
                for stream, kept in self._streams.items()
            ],
        }

    def _close_if_due(self, kept: _Kept, now: float) -> None:
        window = kept.open
        old = now - window.opened >= WINDOW_SECONDS
        if window.requests >= WINDOW_REQUESTS or (old and window.requests >= LEAST_REQUESTS):
            window.closed = now
            kept.closed.append(window)
            kept.open = Window(window.number + 1, now)
