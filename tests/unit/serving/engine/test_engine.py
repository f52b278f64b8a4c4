"""The engine's turn with a scripted model: failures stay with the requests they belong to."""

from __future__ import annotations

import pytest

from registry.errors import ConflictError
from serving.engine.engine import Engine, EngineBroken, StepResult
from serving.engine.messages import Generate, SamplingParams
from serving.engine.sequence import ModelLimits, Span

LIMITS = ModelLimits(vocab_size=100, max_model_len=40, eos_token_ids=(0,))


class CountingRunner:
    """A model whose next token is the length so far; it fails where told."""

    def __init__(self, no_number_for: str = "", broken_steps: int = 0) -> None:
        self.no_number_for = no_number_for
        self.broken_steps = broken_steps

    def run(self, spans: list[Span]) -> list[int | None]:
        if self.broken_steps:
            self.broken_steps -= 1
            raise RuntimeError("secret text of a prompt")
        return [
            None if s.sequence.request_id == self.no_number_for else len(s.sequence.token_ids)
            for s in spans
            if s.samples
        ]

    def allocated_bytes(self) -> int | None:
        return None

    def memory_bytes(self) -> int:
        return 0


def engine(runner: CountingRunner) -> Engine:
    return Engine(runner, LIMITS, max_slots=2, max_batch_tokens=8)


def request(name: str, max_tokens: int = 3) -> Generate:
    return Generate(name, (1, 2, 3), SamplingParams(max_tokens=max_tokens))


def drain(subject: Engine) -> StepResult:
    everything = StepResult([], [])
    while subject.busy:
        result = subject.step()
        everything.outputs += result.outputs
        everything.failures += result.failures
        subject.check_integrity()
    assert subject.stats().integrity_errors == 0
    assert subject.scheduler.slots.free == 2
    return everything


def tokens(result: StepResult, name: str) -> list[int]:
    return [t for o in result.outputs if o.request_id == name for t in o.token_ids]


def test_each_request_gets_its_own_tokens() -> None:
    subject = engine(CountingRunner())
    for name in "abc":
        subject.add(request(name))
    result = drain(subject)
    assert [tokens(result, name) for name in "abc"] == [[3, 4, 5]] * 3


def test_a_row_without_a_finite_number_fails_alone() -> None:
    subject = engine(CountingRunner(no_number_for="bad"))
    subject.add(request("bad"))
    subject.add(request("good"))
    result = drain(subject)
    assert [(f.request_id, f.code) for f in result.failures] == [("bad", "not_finite")]
    assert tokens(result, "good") == [3, 4, 5]


def test_a_failing_step_fails_its_requests_and_serving_goes_on() -> None:
    subject = engine(CountingRunner(broken_steps=1))
    subject.add(request("during"))
    (failure,) = subject.step().failures
    assert (failure.request_id, failure.code) == ("during", "engine_error")
    assert "secret" not in failure.what
    subject.add(request("after"))
    assert tokens(drain(subject), "after") == [3, 4, 5]


def test_steps_that_keep_failing_end_the_engine() -> None:
    subject = engine(CountingRunner(broken_steps=9))
    with pytest.raises(EngineBroken):
        for number in range(9):
            subject.add(request(str(number)))
            subject.step()


def test_cancel_is_confirmed_once_and_frees_the_slot() -> None:
    subject = engine(CountingRunner())
    for name in ("running", "running too", "waiting"):
        subject.add(request(name, max_tokens=30))
    subject.step()
    subject.cancel("running")
    subject.cancel("waiting")
    subject.cancel("waiting")
    subject.cancel("never seen")
    result = drain(subject)
    ended = {o.request_id: o.finish_reason for o in result.outputs if o.finish_reason}
    assert ended == {"running": "cancelled", "waiting": "cancelled", "running too": "length"}


def test_an_id_under_way_is_not_taken_twice() -> None:
    subject = engine(CountingRunner())
    subject.add(request("a"))
    with pytest.raises(ConflictError):
        subject.add(request("a"))
    assert tokens(drain(subject), "a") == [3, 4, 5]
    subject.add(request("a"))
    assert tokens(drain(subject), "a") == [3, 4, 5]
