"""Greedy answers equal ``generate()``'s token for token, for each architecture we name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.parity import (
    ours,
    random_prompts,
    reference,
    reference_model,
    start_engine,
)
from tests.support.tiny_models import ARCHITECTURES, EOS, VOCABULARY, save_tiny

# One token, below and above a chunk, exactly a chunk, several chunks.
LENGTHS = (1, 2, 7, 31, 48, 49, 100, 333)
MAX_TOKENS = 24


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    return save_tiny(ARCHITECTURES[request.param], directory)


def test_batched_and_alone_equal_generate(checkpoint: Path) -> None:
    prompts = random_prompts(LENGTHS, VOCABULARY)
    model = reference_model(checkpoint, torch.float32)
    expected = [reference(model, prompt, MAX_TOKENS) for prompt in prompts]
    # The comparison would be empty if a model said the same whatever it is asked.
    assert len({tuple(answer) for answer in expected}) > len(prompts) // 2

    engine = start_engine(checkpoint)
    assert ours(engine, prompts, MAX_TOKENS) == expected
    assert [ours(engine, [prompt], MAX_TOKENS)[0] for prompt in prompts] == expected


@pytest.mark.parametrize(("slots", "budget"), [(1, 1), (2, 5), (3, 64), (8, 512)])
def test_slots_and_budget_do_not_change_answers(tmp_path: Path, slots: int, budget: int) -> None:
    directory = save_tiny(ARCHITECTURES["qwen3"], tmp_path)
    prompts = random_prompts((3, 20, 1, 64, 11), VOCABULARY)
    model = reference_model(directory, torch.float32)
    expected = [reference(model, prompt, 12) for prompt in prompts]
    engine = start_engine(directory, max_slots=slots, max_batch_tokens=budget)
    assert ours(engine, prompts, 12) == expected


def test_an_answer_ends_with_its_eos_as_in_generate(tmp_path: Path) -> None:
    directory = save_tiny(ARCHITECTURES["llama"], tmp_path)
    model = reference_model(directory, torch.float32)
    prompts = random_prompts([5] * 40, VOCABULARY)
    expected = [reference(model, prompt, 40) for prompt in prompts]
    ended = [answer for answer in expected if len(answer) < 40]
    assert ended and all(answer[-1] == EOS for answer in ended)
    assert ours(start_engine(directory), prompts, 40) == expected
