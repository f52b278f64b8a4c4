from __future__ import annotations

import math
from typing import Any

import pytest

from registry.errors import InputError
from serving.engine.messages import Generate, SamplingParams
from serving.engine.sequence import ModelLimits, Sequence

LIMITS = ModelLimits(vocab_size=100, max_model_len=10, eos_token_ids=(0,))


def make(tokens: tuple[int, ...] = (1, 2), **sampling: Any) -> Sequence:
    params = SamplingParams(**({"max_tokens": 4} | sampling))
    return Sequence.from_request(Generate("r", tokens, params), LIMITS, now=0.0)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("token_ids", {"tokens": ()}),
        ("token_ids", {"tokens": (1,) * 10}),
        ("token_ids", {"tokens": (1, 100)}),
        ("token_ids", {"tokens": (-1, 5)}),
        ("max_tokens", {"max_tokens": 0}),
        ("temperature", {"temperature": -0.1}),
        ("temperature", {"temperature": math.nan}),
        ("temperature", {"temperature": math.inf}),
        ("top_p", {"top_p": 0.0}),
        ("top_p", {"top_p": 1.1}),
        ("top_p", {"top_p": math.nan}),
        ("top_k", {"top_k": -1}),
    ],
)
def test_a_field_out_of_range_is_named(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        make(**arguments)
    assert caught.value.where == field


def test_the_answer_ends_where_the_context_does() -> None:
    subject = make((1,) * 8, max_tokens=50)
    assert [subject.append(5), subject.append(5)] == [None, "length"]


def test_stop_tokens_end_it_also_when_eos_is_ignored() -> None:
    subject = make(ignore_eos=True, stop_token_ids=(42,))
    assert [subject.append(0), subject.append(42)] == [None, "stop"]


def test_the_same_seed_draws_the_same_numbers() -> None:
    one, other, third = make(seed=5), make(seed=5), make(seed=6)
    draws = [one.random.random() for _ in range(5)]
    assert draws == [other.random.random() for _ in range(5)]
    assert draws != [third.random.random() for _ in range(5)]
