"""How the end of a probe becomes a gate's outcome."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from lifecycle.gates.limited_process import Ended
from lifecycle.gates.loads_and_answers import Question, judge

ANSWER = {
    "text": "Paris.",
    "tokens": 3,
    "deterministic": True,
    "load_seconds": 1.25,
    "generate_seconds": 0.5,
    "peak_rss_bytes": 10,
    "architecture": "LlamaForCausalLM",
    "parameters": 7,
}


def ended(report: dict[str, Any] | None, exit_code: int | None = 0, stderr: str = "") -> Ended:
    stdout = "" if report is None else f"some library's chatter\n{json.dumps(report)}\n"
    return Ended(exit_code, stdout, stderr)


def test_the_same_answer_twice_passes_with_its_numbers() -> None:
    outcome = judge(ended(ANSWER), Question())
    assert outcome.verdict == "pass"
    assert outcome.sample == (Question().prompt, "Paris.")
    assert outcome.numbers["load_ms"] == 1250
    assert not any(isinstance(value, float) for value in outcome.numbers.values())


def test_two_different_answers_fail() -> None:
    outcome = judge(ended(ANSWER | {"deterministic": False}), Question())
    assert outcome.verdict == "fail"
    assert "differ" in outcome.findings[0]


def test_an_empty_answer_fails() -> None:
    assert judge(ended(ANSWER | {"text": " \n"}), Question()).verdict == "fail"


def test_a_refused_checkpoint_fails_with_the_loaders_own_words() -> None:
    report = {"error": {"what": "sliding-window attention", "where": "config.json", "fix": "no"}}
    outcome = judge(ended(report, exit_code=2), Question())
    assert outcome.verdict == "fail"
    assert outcome.findings == ("sliding-window attention; config.json; no",)


def test_a_crash_fails_and_says_how() -> None:
    outcome = judge(ended(None, -signal.SIGSEGV, "Fatal Python error"), Question())
    assert outcome.verdict == "fail"
    assert "SIGSEGV" in outcome.summary
    assert outcome.findings == ("Fatal Python error",)


@pytest.mark.parametrize("exit_code", [None, -signal.SIGKILL, -signal.SIGXCPU])
def test_what_the_host_could_not_do_is_inconclusive(exit_code: int | None) -> None:
    outcome = judge(ended(None, exit_code), Question())
    assert outcome.verdict == "inconclusive"
    assert not outcome.passed
