"""What rounding explains is no alarm; what it does not explain is one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lifecycle.drift.canary import PROMPTS, compare, reference_body

FACTS = {"torch": "2.13.0", "device": "cpu"}


def answers(shift: float = 0.0) -> dict[str, Any]:
    one = {
        "token_ids": [10, 11, 12],
        "logprobs": [-0.1 + shift, -0.7 + shift, -0.2 + shift],
        "top_ids": [[10, 20], [11, 21], [12, 22]],
        "top_logprobs": [[-0.1, -3.0], [-0.7, -0.75], [-0.2, -4.0]],
    }
    return {"answers": [copy.deepcopy(one) for _ in PROMPTS]}


def other_token(position: int, token: int) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        answer["answers"][0]["token_ids"][position] = token

    return change


def test_the_same_answers_are_ok() -> None:
    verdict = compare(reference_body(answers(), FACTS), answers(), FACTS)
    assert (verdict.outcome, verdict.mean_moved) == ("ok", 0)
    assert {result.state for result in verdict.results} == {"same"}
    assert all(result.nll == pytest.approx(1 / 3) for result in verdict.results)


@pytest.mark.parametrize(
    ("change", "outcome", "state"),
    [
        (other_token(1, 21), "ok", "near_tie"),
        (other_token(0, 20), "alarm", "changed"),
        (other_token(1, 99), "alarm", "changed"),
        (lambda answer: answer["answers"][0]["token_ids"].append(13), "alarm", "changed"),
        (lambda answer: answer["answers"][0]["token_ids"].clear(), "alarm", "changed"),
    ],
)
def test_another_token_alarms_unless_it_was_close(
    change: Callable[[dict[str, Any]], None], outcome: str, state: str
) -> None:
    now = answers()
    change(now)
    verdict = compare(reference_body(answers(), FACTS), now, FACTS)
    assert (verdict.outcome, verdict.results[0].state) == (outcome, state)
    assert verdict.results[0].sha256 != verdict.results[1].sha256


def test_the_same_tokens_with_other_probabilities_alarm() -> None:
    verdict = compare(reference_body(answers(), FACTS), answers(shift=-0.02), FACTS)
    assert verdict.outcome == "alarm" and "0.020 nats" in verdict.reason


def test_a_device_that_rounds_more_is_allowed_more() -> None:
    noisy = reference_body(answers(), FACTS, [answers(shift=0.01)])
    assert compare(noisy, answers(shift=-0.02), FACTS).outcome == "ok"
    assert compare(noisy, answers(shift=-0.05), FACTS).outcome == "alarm"


def test_the_reason_names_software_that_changed() -> None:
    verdict = compare(reference_body(answers(), FACTS), answers(-0.1), FACTS | {"torch": "2.14.0"})
    assert "torch: 2.13.0 → 2.14.0" in verdict.reason
