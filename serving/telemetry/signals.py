"""What a sketch measures, and into which bins: the definitions that a reader needs.

A numeric signal has upper edges: bin ``i`` holds ``edges[i-1] < value <= edges[i]``, and one
more bin holds what is above the last. A categorical one has names. A pooled one has moments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.telemetry.scripts import SCRIPTS

IntArray = NDArray[np.int64]

PER_OCTAVE = 4
"""Bins for each doubling: a value is known to a factor of 2^(1/4), or 19 %."""


def _octaves(lowest: float, doublings: int) -> tuple[float, ...]:
    return tuple(lowest * 2 ** (step / PER_OCTAVE) for step in range(doublings * PER_OCTAVE + 1))


_TOKENS = _octaves(1, 17)
_SECONDS = _octaves(1 / 1024, 20)
_RATIO = tuple(step / 20 for step in range(20))

NUMERIC: dict[str, tuple[float, ...]] = {
    "prompt_tokens": _TOKENS,
    "output_tokens": _TOKENS,
    "latency_seconds": _SECONDS,
    "ttft_seconds": _SECONDS,
    "token_seconds": _SECONDS,
    "repetition": _RATIO,
}
"""Upper edges. ``token_seconds``: mean time of a token after the first. ``repetition``: share
of an answer's 4-grams of tokens that occurred before in the same answer."""

BUCKETS = 256
"""Token ids are hashed into so many: enough to see a change, too few to read a text from."""

CATEGORICAL: dict[str, tuple[str, ...]] = {
    "prompt_script": SCRIPTS,
    "output_script": SCRIPTS,
    "finish_reason": ("stop", "length", "none"),
    "outcome": ("ok", "empty", "error", "hung_up"),
    "prompt_ids": tuple(str(bucket) for bucket in range(BUCKETS)),
    "output_ids": tuple(str(bucket) for bucket in range(BUCKETS)),
}

POOLED = ("prompt_pooled", "output_pooled")
DIMENSIONS = 16
SCALE = 1000
"""Pooled vectors are kept in thousandths, so that every sum is a whole number."""

NGRAM = 4


def _signs() -> IntArray:
    """[BUCKETS, DIMENSIONS] of ±1: Walsh functions, so the same on every host and release."""
    # Any distinct masks do; multiples of an odd number mix high and low bits of the bucket.
    masks = [(1 + 37 * column) % BUCKETS for column in range(DIMENSIONS)]
    return np.array(
        [[1 - 2 * ((bucket & mask).bit_count() % 2) for mask in masks] for bucket in range(BUCKETS)]
    )


_SIGNS = _signs()


def bucket_counts(token_ids: Sequence[int]) -> IntArray:
    """How many of the ids fall into each bucket: [BUCKETS]."""
    # Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4): the high byte
    # of the product modulo 2^32.
    ids = np.array(token_ids, dtype=np.uint32)
    high: NDArray[np.uint32] = (ids * np.uint32(2654435761)) >> np.uint32(24)
    counts: IntArray = np.bincount(high, minlength=BUCKETS)
    return counts


def pooled(counts: IntArray) -> IntArray:
    """A request's tokens as one vector: each a fixed ±1 vector, averaged; [DIMENSIONS]."""
    total = max(1, int(counts.sum()))
    vector: IntArray = np.rint(counts @ _SIGNS * (SCALE / total)).astype(np.int64)
    return vector


def repetition(token_ids: Sequence[int]) -> float | None:
    """Share of the 4-grams that are not new; None where there are none at all."""
    total = len(token_ids) - NGRAM + 1
    if total < 1:
        return None
    grams = set(zip(*(token_ids[start:] for start in range(NGRAM)), strict=False))
    return 1 - len(grams) / total


def definitions() -> dict[str, dict[str, object]]:
    """Every signal's bins, as plain values."""
    return {
        **{name: {"kind": "numeric", "edges": list(edges)} for name, edges in NUMERIC.items()},
        **{name: {"kind": "categorical", "bins": list(b)} for name, b in CATEGORICAL.items()},
        **{name: {"kind": "pooled", "dimensions": DIMENSIONS} for name in POOLED},
    }
