"""Greedy answers of the demo model equal ``generate()``'s, in the stored dtype too.

In float32 token for token. In bfloat16 two correct programs may round differently, so a
position where the reference's own best logits lie within rounding of each other may go
either way: such positions are found by the reference itself, counted and bounded.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from serving.text.codec import TextCodec
from tests.support.parity import ours, reference, reference_model, start_engine

MAX_TOKENS = 24
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three uses of iron.",
    "Explain to a child why the sky is blue. " * 6,
)
TEXTS = (
    "A",
    "The quick brown fox",
    "Once upon a time, in a small village, " * 20,
    "def add(a, b):",
)

NEAR_TIE = 0.25
"""Logits. One bfloat16 step is 0.125 at the size of the best logits (16…32); 30 layers of
rounding make two of them."""
NEAR_TIES_ALLOWED = 0.05
"""Share of positions that may be decided by rounding."""


@pytest.fixture(scope="module")
def prompts(demo_model_dir: Path) -> list[list[int]]:
    codec = TextCodec.from_directory(demo_model_dir)
    chats = [codec.render_chat([{"role": "user", "content": text}]) for text in QUESTIONS]
    return chats + [codec.encode(text) for text in TEXTS]


def test_float32_equals_generate_token_for_token(
    demo_model_dir: Path, prompts: list[list[int]]
) -> None:
    torch.set_num_threads(1)
    model = reference_model(demo_model_dir, torch.float32)
    expected = [reference(model, prompt, MAX_TOKENS) for prompt in prompts]
    engine = start_engine(demo_model_dir, dtype="float32", max_batch_tokens=64)
    assert ours(engine, prompts, MAX_TOKENS) == expected
    assert ours(engine, prompts[:1], MAX_TOKENS) == expected[:1]


def test_bfloat16_differs_only_where_the_reference_nearly_ties(
    demo_model_dir: Path, prompts: list[list[int]]
) -> None:
    torch.set_num_threads(1)
    model = reference_model(demo_model_dir, torch.bfloat16)
    answers = ours(start_engine(demo_model_dir, max_batch_tokens=64), prompts, MAX_TOKENS)
    positions = near_ties = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        behind = logits_behind(model, prompt, answer)
        positions += len(answer)
        near_ties += sum(gap > 0 for gap in behind)
        assert max(behind) <= NEAR_TIE, f"{max(behind)} behind the reference's best logit"
        expected = reference(model, prompt, MAX_TOKENS)
        if answer != expected:
            first = first_difference(answer, expected)
            assert top_two_gap(model, prompt, expected, first) <= NEAR_TIE
    assert near_ties <= NEAR_TIES_ALLOWED * positions, f"{near_ties} of {positions}"


def logits_behind(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> list[float]:
    """How far each token of ours is behind the reference's best, our answer forced on it."""
    logits = forced(model, prompt, answer)
    chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    return [float(gap) for gap in logits.max(dim=1).values - chosen]


def first_difference(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def top_two_gap(
    model: PreTrainedModel, prompt: list[int], answer: list[int], position: int
) -> float:
    """Distance of the reference's two best logits at one position of its own answer."""
    best, second = forced(model, prompt, answer)[position].topk(2).values
    return float(best - second)


@torch.inference_mode()
def forced(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Logits before each token of the answer: float32 [len(answer), vocabulary]."""
    logits = model(input_ids=torch.tensor([prompt + answer]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 : -1].float()
