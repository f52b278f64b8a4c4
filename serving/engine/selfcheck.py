"""Before it serves, an engine proves on the loaded model that its hooks change nothing.

A model can ignore a hook without an error (its own attention, a mask that carries
position biases, state between tokens) and then answer fluent nonsense. So the same
tokens go through transformers' eager attention, one sequence at a time, and through our
packed, chunked steps; the logits must agree within rounding.
"""

from __future__ import annotations

import random

import torch

from registry.errors import CheckpointError, IronworksError
from serving.engine.attention import NAME
from serving.engine.messages import Generate, SamplingParams
from serving.engine.runner import ModelRunner
from serving.engine.sequence import ModelLimits, Sequence, Span

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.15}
"""Largest relative root mean square difference of logits. Rounding gives about 1e-6 in
float32 and about 0.05 in bfloat16 (30 layers); a model that ignores a hook gives about 1.
"""
_LONG, _SHORT = 12, 7


def check_hooks(runner: ModelRunner, limits: ModelLimits) -> float:
    """Compare hooked and eager logits on the loaded model.

    Returns:
        The relative difference found.

    Raises:
        CheckpointError: they differ, or the model does not run with the hooks.
        MemoryError: the KV pool does not fit.
    """
    try:
        return _compare(runner, limits)
    except IronworksError:
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        # Neither allocator's error has a type of its own below RuntimeError on CPU.
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        text = str(error).partition("\n")[0][:200]
        raise _refusal(f"{type(error).__name__} in its first step: {text}") from error


def _compare(runner: ModelRunner, limits: ModelLimits) -> float:
    slots = runner.pool.pool_layers[0].rows // runner.pool.slot_length
    long = _sequence(min(_LONG, limits.max_model_len - 1), 0, limits)
    short = _sequence(min(_SHORT, limits.max_model_len - 1), slots - 1, limits)
    end = long.prompt_length
    middle = end // 2
    together = [Span(long, middle, end - 1 - middle)] if end - 1 > middle else []
    if slots > 1:
        together.append(Span(short, 0, short.prompt_length))
    steps = [[Span(long, 0, middle)] if middle else [], together, [Span(long, end - 1, 1)]]
    ours = torch.cat([runner.logits(step) for step in steps if step])
    if runner.pool.bytes == 0:
        raise _refusal("it keeps keys and values of its own")
    expected = torch.cat([_eager(runner, s) for s in ([short, long] if slots > 1 else [long])])
    difference = _relative(ours, expected)
    allowed = TOLERANCE.get(runner.model.dtype, TOLERANCE[torch.bfloat16])
    if not difference <= allowed:
        raise _refusal(f"its logits under our attention differ by {difference:.1%}")
    return difference


def _sequence(length: int, slot: int, limits: ModelLimits) -> Sequence:
    chance = random.Random(length)
    tokens = tuple(chance.randrange(limits.vocab_size) for _ in range(length))
    request = Generate(f"self-check-{slot}", tokens, SamplingParams(max_tokens=1))
    sequence = Sequence.from_request(request, limits, now=0.0)
    sequence.slot = slot
    return sequence


@torch.inference_mode()
def _eager(runner: ModelRunner, sequence: Sequence) -> torch.Tensor:
    """Logits after the last token, [1, vocabulary], by transformers alone."""
    model = runner.model
    model.set_attn_implementation("eager")
    try:
        input_ids = torch.tensor([sequence.token_ids], device=runner.device)
        logits: torch.Tensor = model(input_ids=input_ids, use_cache=False).logits[:, -1]
        return logits
    finally:
        model.set_attn_implementation(NAME)


def _relative(ours: torch.Tensor, expected: torch.Tensor) -> float:
    if ours.shape != expected.shape:
        raise _refusal("it does not give logits for the tokens that were asked for")
    ours, expected = ours.float(), expected.float()
    return float((ours - expected).norm() / (expected - expected.mean()).norm())


def _refusal(why: str) -> CheckpointError:
    return CheckpointError(
        f"this architecture can't be served: {why}",
        where="config.json",
        fix="serve a model whose attention goes through transformers' AttentionInterface",
    )
