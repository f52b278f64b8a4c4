"""The scheduler alone, with an invented model: no torch, no process."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.messages import Generate, SamplingParams
from serving.engine.scheduler import Scheduler
from serving.engine.sequence import ModelLimits, Sequence, Span
from serving.engine.slots import SlotPool

LIMITS = ModelLimits(vocab_size=100, max_model_len=40, eos_token_ids=(0,))


def sequence(name: str, prompt: int, max_tokens: int = 5) -> Sequence:
    request = Generate(name, tuple(range(1, prompt + 1)), SamplingParams(max_tokens=max_tokens))
    return Sequence.from_request(request, LIMITS, now=0.0)


def scheduler(slots: int = 2, budget: int = 8) -> Scheduler:
    return Scheduler(SlotPool(slots, LIMITS.max_model_len), budget)


def shape(spans: list[Span]) -> list[tuple[str, int, int]]:
    return [(span.sequence.request_id, span.start, span.count) for span in spans]


def advance(subject: Scheduler, token: int = 9) -> list[tuple[str, int, int]]:
    spans = subject.schedule(now=1.0)
    subject.postprocess(spans, [token for span in spans if span.samples], now=2.0)
    return shape(spans)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    subject = scheduler(budget=8)
    subject.add(sequence("long", 19))
    assert advance(subject) == [("long", 0, 8)]
    assert advance(subject) == [("long", 8, 8)]
    assert advance(subject) == [("long", 16, 3)]
    assert advance(subject) == [("long", 19, 1)]


def test_decodes_come_first_and_prompts_share_what_is_left() -> None:
    subject = scheduler(slots=3, budget=8)
    subject.add(sequence("a", 3))
    advance(subject)
    subject.add(sequence("b", 10))
    subject.add(sequence("c", 4))
    assert advance(subject) == [("a", 3, 1), ("b", 0, 7)]
    assert advance(subject) == [("a", 4, 1), ("b", 7, 3), ("c", 0, 4)]


def test_a_full_pool_keeps_the_order_of_arrival() -> None:
    subject = scheduler(slots=1, budget=64)
    for name in ("first", "second", "third"):
        subject.add(sequence(name, 4, max_tokens=1))
    assert advance(subject) == [("first", 0, 4)]
    assert advance(subject) == [("second", 0, 4)]
    assert advance(subject) == [("third", 0, 4)]
    assert not subject.busy


def test_removing_a_running_sequence_gives_its_slot_to_the_next() -> None:
    subject = scheduler(slots=1)
    running, waiting = sequence("running", 4), sequence("waiting", 4)
    subject.add(running)
    subject.add(waiting)
    advance(subject)
    subject.remove(running)
    assert advance(subject) == [("waiting", 0, 4)]
    assert subject.problems() == []


def test_first_token_says_how_long_it_waited_and_was_computed() -> None:
    subject = scheduler(budget=2)
    subject.add(sequence("a", 3))
    subject.postprocess(subject.schedule(now=1.5), [], now=2.0)
    spans = subject.schedule(now=2.0)
    (first,) = subject.postprocess(spans, [5], now=4.0)
    assert (first.queue_seconds, first.prefill_seconds) == (1.5, 2.5)
    (second,) = subject.postprocess(subject.schedule(now=4.0), [5], now=5.0)
    assert (second.queue_seconds, second.prefill_seconds) == (None, None)


def test_a_sequence_ends_by_eos_and_by_length() -> None:
    subject = scheduler()
    subject.add(sequence("eos", 3))
    subject.add(sequence("length", 3, max_tokens=1))
    spans = subject.schedule(now=0.0)
    outputs = subject.postprocess(spans, [0, 9], now=0.0)
    assert [(o.request_id, o.finish_reason) for o in outputs] == [
        ("eos", "stop"),
        ("length", "length"),
    ]
    assert subject.slots.free == 2


def test_one_token_of_budget_per_slot_is_the_least() -> None:
    subject = scheduler(slots=4, budget=1)
    for name in "abcd":
        subject.add(sequence(name, 1, max_tokens=9))
    advance(subject)
    assert len(advance(subject)) == 4


@given(
    requests=st.lists(st.tuples(st.integers(1, 39), st.integers(1, 60)), max_size=12),
    slots=st.integers(1, 5),
    budget=st.integers(1, 50),
    cancels=st.sets(st.tuples(st.integers(0, 30), st.integers(0, 11)), max_size=8),
)
def test_every_request_ends_and_the_books_always_balance(
    requests: list[tuple[int, int]],
    slots: int,
    budget: int,
    cancels: set[tuple[int, int]],
) -> None:
    subject = scheduler(slots, budget)
    for number, (prompt, max_tokens) in enumerate(requests):
        subject.add(sequence(str(number), prompt, max_tokens))
    got = dict.fromkeys(map(str, range(len(requests))), 0)
    ended: set[str] = set()
    for step in range(2000):
        if not subject.busy:
            break
        for at, number in cancels:
            found = subject.find(str(number)) if at == step else None
            if found is not None:
                subject.remove(found)
                ended.add(str(number))
        spans = subject.schedule(now=0.0)
        assert sum(span.count for span in spans) <= max(budget, slots)
        assert all(span.end <= LIMITS.max_model_len for span in spans)
        for output in subject.postprocess(spans, [9 for s in spans if s.samples], now=0.0):
            got[output.request_id] += 1
            if output.finish_reason is not None:
                ended.add(output.request_id)
        assert subject.problems() == []
    assert not subject.busy and ended == got.keys()
    assert subject.slots.free == slots
    cancelled = {str(number) for _, number in cancels}
    for number, (prompt, max_tokens) in enumerate(requests):
        if str(number) not in cancelled:
            assert got[str(number)] == min(max_tokens, LIMITS.max_model_len - prompt)


def test_the_scheduler_needs_no_torch() -> None:
    import subprocess

    code = "import sys, serving.engine.engine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
