"""Fixed prompts whose greedy answers must not change while nothing is deployed.

Greedy decoding has no chance in it: the same weights, kernels and configuration give the same
tokens, but for rounding, which depends on what else is in the batch. So an answer is compared
with its probabilities: a difference that rounding can explain is told apart from one it can't.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from registry.canonical import Json

KIND = "canary"
"""Of the frozen reference."""
MAX_TOKENS = 32
PROMPTS = (
    "What is the capital of France?",
    "Count from one to ten in words.",
    "Translate into German: The server is healthy and the disk is full.",
    "Write a Python function that returns the sum of a list of numbers.",
    "A train leaves at 9:40 and arrives at 12:15. How long does it travel?",
    "Name three metals and one use of each.",
    "Repeat exactly: iron works iron works iron works",
    "Explain in one sentence why the sky is blue.",
)

Outcome = Literal["ok", "alarm", "frozen"]


CROWDS = (1, 8)
"""Prompts at once of the further runs that a reference is calibrated with; usually it is 4."""
NOISE_FACTOR = 3


@dataclass(frozen=True)
class Tolerance:
    """What rounding explains, in nats.

    It depends on the device: the same sum in another order, because the batch is another, rounds
    otherwise, and on some devices every batch size has a kernel of its own. So a reference is
    frozen with the changes seen between runs of different sizes, and three times these are
    allowed. Seen on the demo model, CPU, bfloat16 (``benchmarks/drift.py``): 0 on an idle engine,
    0.001 on average and 0.06 at most on a busy one; noise of 0.1 % on one matrix of one layer
    moves the average by 0.017.
    """

    token: float = 0.4
    """Largest change of one token's log probability; also the lead that a token may lose. Logits
    in bfloat16 have steps of 1/8 between 16 and 32."""
    mean: float = 0.005
    """Mean absolute change over all tokens that both runs have in common."""

    @classmethod
    def calibrated(cls, reference: Mapping[str, Any]) -> Tolerance:
        """The tolerance of a reference, by the noise that was seen when it was frozen."""
        noise = reference["noise"]
        return cls(
            max(cls.token, NOISE_FACTOR * noise["largest"] / 1e6),
            max(cls.mean, NOISE_FACTOR * noise["mean"] / 1e6),
        )


@dataclass(frozen=True)
class PromptResult:
    """One prompt against its reference.

    Attributes:
        prompt: what was asked.
        state: ``same`` tokens; ``near_tie``: another token, whose lead was within rounding;
            ``changed``: beyond rounding.
        sha256: of the token ids now.
        common: tokens until the first difference.
        nll: mean negative log probability of those, nats.
        nll_before: the same in the reference.
        largest: largest change of one token's log probability.
        agreement: mean share of the likeliest tokens that both name, 0 to 1.
        moved: sum of absolute changes over the common tokens.
    """

    prompt: str
    state: Literal["same", "near_tie", "changed"]
    sha256: str
    common: int
    nll: float
    nll_before: float
    largest: float
    agreement: float
    moved: float


@dataclass(frozen=True)
class CanaryVerdict:
    """All prompts together, and why in words."""

    outcome: Outcome
    reason: str
    results: tuple[PromptResult, ...]
    mean_moved: float
    """Mean absolute change of a token's log probability, nats."""
    facts_changed: tuple[str, ...]
    """Software or configuration that is not what it was, as "name: before → now"."""


def reference_body(
    answer: Mapping[str, Any], facts: Mapping[str, str], again: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Json]:
    """What is kept of answers of ``ReplicaClient.canary``: whole numbers, micro-nats.

    Args:
        answer: the first run.
        facts: software and configuration it ran on.
        again: further runs of other sizes: what rounding does.
    """
    body: dict[str, Json] = {
        "prompts": list(PROMPTS),
        "max_tokens": MAX_TOKENS,
        "facts": dict(facts),
        "answers": _whole(answer),
        "noise": {"mean": 0, "largest": 0},
    }
    others = [compare(body, one, facts) for one in again]
    noise = {
        "mean": _micro(max((one.mean_moved for one in others), default=0.0)),
        "largest": _micro(max((r.largest for one in others for r in one.results), default=0.0)),
    }
    return body | {"noise": noise}


def compare(
    reference: Mapping[str, Any], answer: Mapping[str, Any], facts: Mapping[str, str]
) -> CanaryVerdict:
    """Compare answers of now with a frozen reference (`reference_body`)."""
    tolerance = Tolerance.calibrated(reference)
    results = tuple(
        _prompt(prompt, before, after, tolerance)
        for prompt, before, after in zip(
            reference["prompts"], reference["answers"], _whole(answer), strict=True
        )
    )
    tokens = sum(result.common for result in results)
    mean = sum(result.moved for result in results) / max(1, tokens)
    changed = tuple(
        f"{name}: {reference['facts'].get(name, 'unknown')} → {value}"
        for name, value in facts.items()
        if reference["facts"].get(name) != value
    )
    beyond = [result.prompt for result in results if result.state == "changed"]
    reasons = []
    if beyond:
        reasons.append(f"{len(beyond)} of {len(results)} answers changed beyond rounding")
    if mean > tolerance.mean:
        reasons.append(f"log probabilities moved by {mean:.3f} nats on average")
    if changed:
        reasons.append("; ".join(changed))
    alarm = bool(beyond) or mean > tolerance.mean
    reason = "; ".join(reasons) or "every answer is what it was"
    return CanaryVerdict("alarm" if alarm else "ok", reason, results, mean, changed)


def _whole(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answers in whole numbers, as the registry keeps them."""
    return [
        {
            "token_ids": list(one["token_ids"]),
            "logprobs": [_micro(value) for value in one["logprobs"]],
            "top_ids": [list(ids) for ids in one["top_ids"]],
            "top_logprobs": [[_micro(value) for value in row] for row in one["top_logprobs"]],
        }
        for one in answer["answers"]
    ]


def _prompt(
    prompt: str, before: Mapping[str, Any], now: Mapping[str, Any], tolerance: Tolerance
) -> PromptResult:
    old, new = before["token_ids"], now["token_ids"]
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    pairs = list(zip(before["logprobs"][:common], now["logprobs"][:common], strict=True))
    changes = [abs(one - other) / 1e6 for one, other in pairs]
    largest = max(changes, default=0.0)
    state: Literal["same", "near_tie", "changed"] = "same"
    if old != new:
        state = "near_tie" if _lead(before, new, common) <= tolerance.token else "changed"
    if largest > tolerance.token:
        state = "changed"
    shares = [
        len(set(one) & set(other)) / max(1, len(one))
        for one, other in zip(before["top_ids"][:common], now["top_ids"][:common], strict=True)
    ]
    return PromptResult(
        prompt,
        state,
        sha256=hashlib.sha256(json.dumps(new).encode()).hexdigest(),
        common=common,
        nll=-sum(other for _, other in pairs) / 1e6 / max(1, common),
        nll_before=-sum(one for one, _ in pairs) / 1e6 / max(1, common),
        largest=largest,
        agreement=sum(shares) / max(1, len(shares)),
        moved=sum(changes),
    )


def _lead(before: Mapping[str, Any], new: Sequence[int], position: int) -> float:
    """By how much, in nats, the reference's token led over the one that is there now."""
    if position >= len(before["token_ids"]) or position >= len(new):
        return float("inf")  # one answer goes on where the other ended: no token to compare
    likeliest = dict(
        zip(before["top_ids"][position], before["top_logprobs"][position], strict=True)
    )
    other = likeliest.get(new[position])
    if other is None:
        return float("inf")
    return float(before["logprobs"][position] - other) / 1e6


def _micro(value: float) -> int:
    return round(value * 1e6)
