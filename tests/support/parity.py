"""What parity tests share: prompts, the reference, our engine in this process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from serving.engine.engine import Engine
from serving.engine.loading import ModelLoad
from serving.engine.messages import Generate, SamplingParams
from tests.support.engine_peer import load_request


def start_engine(
    directory: Path, *, dtype: str = "auto", max_slots: int = 8, max_batch_tokens: int = 48
) -> Engine:
    """Our engine on a checkpoint, loaded as an engine process does."""
    request = load_request(
        directory,
        dtype=dtype,
        max_slots=max_slots,
        max_model_len=512,
        max_batch_tokens=max_batch_tokens,
    )
    load = ModelLoad(request, lambda _phase, _done, _total: None)
    load.verify()
    engine, _ = load.start()
    return engine


def ours(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int, *, ignore_eos: bool = False
) -> list[list[int]]:
    """Greedy outputs of our engine, all prompts under way together."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos)
    for number, prompt in enumerate(prompts):
        engine.add(Generate(str(number), tuple(prompt), sampling))
    outputs: list[list[int]] = [[] for _ in prompts]
    while engine.busy:
        result = engine.step()
        assert not result.failures
        for output in result.outputs:
            outputs[int(output.request_id)].extend(output.token_ids)
        engine.check_integrity()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.kv_tokens_used) == (0, 0, 0)
    assert stats.integrity_errors == 0
    return outputs


def reference_model(directory: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The same checkpoint by transformers alone."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager"
    )
    return model.eval()


def reference(model: PreTrainedModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """``generate()``, greedy, one prompt."""
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_tokens,
        do_sample=False,
    )
    return [int(token) for token in output[0, len(prompt) :]]


def random_prompts(lengths: Sequence[int], vocabulary: int) -> list[list[int]]:
    """Prompts of these lengths, the same in every run."""
    chance = random.Random(7)
    return [[chance.randrange(vocabulary) for _ in range(length)] for length in lengths]
