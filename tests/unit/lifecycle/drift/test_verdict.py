"""Shifts alarm soon, chance does not; one judgement alone is a warning."""

from __future__ import annotations

import pytest

from benchmarks.drift import RULE, delay, judged, stationary
from benchmarks.drift_traffic import SHIFTS, Source, sketched
from lifecycle.drift.verdict import Judgement, SignalResult, decide
from lifecycle.drift.windows import groups_from_newest, streams_of

EXPECTED = {
    # A longer prompt also takes longer to its first token.
    "length": {"prompt_tokens", "ttft_seconds"},
    "language": {"prompt_script"},
    "repetition": {"repetition"},
    "latency": {"latency_seconds", "ttft_seconds", "token_seconds"},
}


@pytest.mark.parametrize("shift", sorted(SHIFTS))
def test_a_shift_alarms_within_four_judgements(shift: str) -> None:
    found = delay(shift, seed=7)
    assert found is not None
    requests, signals = found
    assert requests <= 4 * RULE.judged_requests
    assert EXPECTED[shift] & set(signals)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stationary_traffic_alarms_in_at_most_one_of_a_hundred() -> None:
    seen = stationary(streams=17)
    assert seen.judgements >= 1000
    assert seen.alarms <= 0.01 * seen.judgements


def judgement(*beyond: str) -> Judgement:
    signals = [SignalResult(name, 1.0, 0.5, 0.0, name in beyond) for name in ("a", "b")]
    return Judgement(200, 0, tuple(signals))


@pytest.mark.parametrize(
    ("history", "outcome"),
    [
        ([], "insufficient_data"),
        ([judgement()], "ok"),
        ([judgement("a")], "warn"),
        ([judgement("a"), judgement("a")], "alarm"),
        ([judgement("a"), judgement(), judgement("a")], "alarm"),
        ([judgement("a"), judgement("b")], "warn"),
        ([judgement("a"), judgement("a"), judgement(), judgement()], "ok"),
        ([judgement("a"), judgement()], "ok"),
    ],
)
def test_a_signal_alarms_when_it_comes_back(history: list[Judgement], outcome: str) -> None:
    assert decide(history, RULE).outcome == outcome


def test_every_judgement_tells_its_numbers() -> None:
    (one,) = judged(sketched(Source(5), 1200))
    names = {signal.name for signal in one.signals}
    assert {"prompt_tokens", "latency_seconds", "prompt_ids", "output_pooled", "outcome"} <= names
    assert all(signal.threshold >= RULE.floor for signal in one.signals)
    assert all(0 <= signal.p_value <= 1 for signal in one.signals)


def test_groups_are_disjoint_and_hold_the_newest() -> None:
    _, streams = streams_of([sketched(Source(1), 700)])
    (windows,) = streams.values()
    groups = groups_from_newest(windows, 200)
    assert [len(group) for group in groups] == [2, 2, 2]
    assert groups[-1][-1] is windows[-1] and groups[0][0] is windows[1]
