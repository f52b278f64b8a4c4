from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.messages import SamplingParams
from serving.engine.sampler import choose


def params(**values: float) -> SamplingParams:
    return SamplingParams(max_tokens=1, **values)  # type: ignore[arg-type]


def support(logits: list[float], how: SamplingParams, draws: int = 400) -> set[int | None]:
    """All tokens that evenly spread draws lead to."""
    rows = torch.tensor([logits]).repeat(draws, 1)
    return set(choose(rows, [how] * draws, [i / draws for i in range(draws)]))


def test_greedy_takes_the_highest_logit_of_each_row() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]], dtype=torch.bfloat16)
    assert choose(logits, [params()] * 2, [0.9, 0.9]) == [1, 0]


def test_frequencies_are_the_softmax_of_logits_over_temperature() -> None:
    logits, temperature, draws = torch.tensor([1.0, 3.0, 2.0]), 0.7, 20_000
    how = params(temperature=temperature)
    chosen = choose(
        logits.repeat(draws, 1), [how] * draws, [(i + 0.5) / draws for i in range(draws)]
    )
    expected = (logits / temperature).softmax(0)
    for token in range(3):
        assert chosen.count(token) / draws == pytest.approx(float(expected[token]), abs=2e-3)


def test_top_k_leaves_the_k_best() -> None:
    assert support([0.0, 3.0, 2.0, 1.0], params(temperature=2.0, top_k=2)) == {1, 2}


def test_top_k_beyond_the_vocabulary_leaves_all() -> None:
    assert support([0.0, 0.1, 0.2], params(temperature=1.0, top_k=50)) == {0, 1, 2}


def test_top_p_leaves_the_fewest_whose_mass_reaches_it() -> None:
    logits = [math.log(p) for p in (0.1, 0.5, 0.15, 0.25)]
    assert support(logits, params(temperature=1.0, top_p=0.74)) == {1, 3}
    assert support(logits, params(temperature=1.0, top_p=0.76)) == {1, 2, 3}
    assert support(logits, params(temperature=1.0, top_p=1e-9)) == {1}


def test_top_p_counts_what_top_k_left() -> None:
    logits = [math.log(p) for p in (0.1, 0.5, 0.15, 0.25)]
    # 0.5 and 0.25 become two thirds and one third.
    assert support(logits, params(temperature=1.0, top_k=2, top_p=0.6)) == {1}


@pytest.mark.parametrize("temperature", [1e-30, 1e-5])
def test_a_tiny_temperature_is_greedy_and_not_nan(temperature: float) -> None:
    assert support([1.0, 1.5, -2.0], params(temperature=temperature), 10) == {1}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_gives_nothing_and_the_others_go_on(
    bad: float, temperature: float
) -> None:
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 9.0, 1.0]])
    assert choose(logits, [params(temperature=temperature), params()], [0.5, 0.5]) == [None, 1]


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    draw=st.floats(0, 1, exclude_max=True),
    temperature=st.floats(0.01, 5),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(0, 80),
)
def test_a_rows_choice_does_not_depend_on_the_rest_of_the_batch(
    seed: int, draw: float, temperature: float, top_p: float, top_k: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 64, generator=generator) * 3
    how = params(temperature=temperature, top_p=top_p, top_k=top_k)
    (alone,) = choose(logits[2:3], [how], [draw])
    others = [params(), params(temperature=1.0), how, params(temperature=2.0, top_k=3)]
    assert choose(logits, others, [0.1, 0.2, draw, 0.3])[2] == alone


@settings(max_examples=50)
@given(seed=st.integers(0, 2**31), top_p=st.floats(0.01, 0.999))
def test_the_nucleus_is_the_one_of_a_full_sort(seed: int, top_p: float) -> None:
    logits = torch.randn(200, generator=torch.Generator().manual_seed(seed)) * 4
    probabilities, order = logits.softmax(0).sort(descending=True)
    before = probabilities.double().cumsum(0) - probabilities
    nucleus = set(order[before < top_p].tolist()) | {int(order[0])}
    assert support(logits.tolist(), params(temperature=1.0, top_p=top_p), 100) <= nucleus
    last = len(nucleus) - 1
    if probabilities[last] > 0.02:  # likely enough to be met by a hundred even draws
        assert support(logits.tolist(), params(temperature=1.0, top_p=top_p), 100) == nucleus
