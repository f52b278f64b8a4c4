"""When the fleet grows, when it shrinks, and why it is left alone."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.fleet.autoscale import (
    FleetLoad,
    ScaleDecision,
    ScaleState,
    decide,
    formula,
    state_from_json,
)
from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scale_simulation import article

RULE = ScaleRule(max_replicas=10)
IDLE = FleetLoad(replicas=1, ready=1, running=0, waiting=0)


def follow(
    loads: list[FleetLoad], rule: ScaleRule = RULE, state: ScaleState | None = None
) -> list[ScaleDecision]:
    """The decisions at one look every 30 s, the state passed through JSON as a cursor is."""
    decisions = []
    state = state or ScaleState()
    for number, load in enumerate(loads):
        decision = decide(load, state, 30.0 * number, rule)
        state = state_from_json(json.loads(json.dumps(asdict(decision.state))))
        assert state == decision.state
        decisions.append(decision)
    return decisions


def test_growth_waits_for_the_up_window_and_takes_the_smallest_wish() -> None:
    burst = [replace(IDLE, running=16, waiting=w) for w in (60, 30)]
    first, second = follow(burst)
    assert not first.changes and "if that lasts" in first.reason
    assert (second.changes, second.target) == (True, 4)
    assert second.inputs["in_system"] == 46 and second.inputs["formula"] == 4


def test_a_burst_that_is_over_at_the_next_look_changes_nothing() -> None:
    decisions = follow([replace(IDLE, running=16, waiting=60), replace(IDLE, running=9)])
    assert not any(decision.changes for decision in decisions)


def test_no_second_change_before_the_cool_down_is_over_and_it_says_so() -> None:
    busy = replace(IDLE, running=16, waiting=14)
    grown = replace(IDLE, replicas=3, ready=3, running=48, waiting=40)
    rule = replace(RULE, up_cooldown_seconds=90)
    decisions = follow([busy, busy, grown, grown, grown, grown], rule)
    assert [d.changes for d in decisions] == [False, True, False, False, True, False]
    assert "after the cool-down" in decisions[3].reason


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        ({"kv_usage": 0.95}, "KV use"),
        ({"ttft_p95_seconds": 2.5}, "time to first token"),
        ({"gpu_util": 0.85, "gpu_memory": 0.95}, "GPU utilisation and memory"),
    ],
)
def test_a_signal_over_its_bound_for_the_window_asks_for_one_more(
    signal: dict[str, float], name: str
) -> None:
    pressed = replace(IDLE, running=10, **signal)  # type: ignore[arg-type]
    *_, last = follow([pressed] * 3)
    assert (last.changes, last.target) == (True, 2)
    assert name in last.reason


def test_the_gpus_utilisation_alone_asks_for_nothing() -> None:
    busy = replace(IDLE, running=10, gpu_util=1.0, gpu_memory=0.6)
    assert not any(decision.changes for decision in follow([busy] * 5))


def test_pressure_while_replicas_still_start_adds_no_more() -> None:
    starting = FleetLoad(replicas=2, ready=1, running=16, waiting=4, ttft_p95_seconds=9.0)
    assert not any(decision.changes for decision in follow([starting] * 10))


def test_shrinking_needs_five_calm_minutes_and_takes_the_largest_need_of_them() -> None:
    calm = FleetLoad(replicas=4, ready=4, running=4, waiting=0, gpu_util=0.1, gpu_memory=0.2)
    loads = [replace(calm, running=n) for n in (4, 4, 20, 4, 4, 4, 4, 4, 4, 4, 4)]
    decisions = follow(loads)
    assert [d.changes for d in decisions] == [False] * 10 + [True]
    assert decisions[-1].target == 3, "20 requests need three replicas with room to spare"


@pytest.mark.parametrize(
    "busy", [{"gpu_util": 0.4}, {"gpu_memory": 0.6}, {"waiting": 1}, {"ready": 3}]
)
def test_one_look_that_is_not_calm_starts_the_down_window_anew(busy: dict[str, float]) -> None:
    calm = FleetLoad(replicas=4, ready=4, running=4, waiting=0, gpu_util=0.1, gpu_memory=0.2)
    loads = [calm] * 8 + [replace(calm, **busy)] + [calm] * 8  # type: ignore[arg-type]
    assert not any(decision.changes for decision in follow(loads))


def test_nothing_is_given_up_while_the_load_rises() -> None:
    rising = [FleetLoad(replicas=6, ready=6, running=n, waiting=0) for n in range(2, 26, 2)]
    decisions = follow(rising)
    assert not any(decision.changes for decision in decisions)
    assert "rising" in decisions[-1].reason


def test_devices_that_are_lost_bound_growth_and_take_nothing_away() -> None:
    busy = FleetLoad(replicas=2, ready=2, running=32, waiting=40, healthy_devices=2)
    *_, last = follow([busy] * 3)
    assert not last.changes and "2 healthy devices carry no more" in last.reason
    *_, fewer = follow([replace(busy, healthy_devices=1)] * 3)
    assert fewer.target == 2
    *_, per_two = follow(
        [replace(busy, healthy_devices=7)] * 2, replace(RULE, devices_per_replica=2)
    )
    assert per_two.target == 3


def test_an_unknown_load_holds_and_forgets_wishes_that_nobody_confirmed() -> None:
    busy = replace(IDLE, running=16, waiting=60)
    blind = replace(IDLE, unknown="replica-8001 does not answer")
    decisions = follow([busy, blind, busy])
    assert not any(decision.changes for decision in decisions)
    assert "replica-8001" in decisions[1].reason


def test_bounds_moved_by_the_operator_are_obeyed_at_once() -> None:
    (more,) = follow([IDLE], replace(RULE, min_replicas=2))
    assert (more.changes, more.target) == (True, 2)
    (fewer,) = follow([replace(IDLE, replicas=12, ready=12)])
    assert (fewer.changes, fewer.target) == (True, 10)
    (none,) = follow([replace(IDLE, replicas=0, ready=0)])
    assert not none.changes, "a fleet that nobody declared is not scaled"


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=60),
    st.integers(1, 4),
    st.integers(4, 9),
)
def test_whatever_comes_the_bounds_hold_and_no_growth_is_soon_undone(
    loads: list[tuple[int, int]], least: int, most: int
) -> None:
    rule = replace(RULE, min_replicas=least, max_replicas=most)
    state, replicas, grown = ScaleState(), least, -1e9
    for number, (running, waiting) in enumerate(loads):
        now = 30.0 * number
        load = FleetLoad(replicas, replicas, running, waiting)
        decision = decide(load, state, now, rule)
        assert least <= decision.target <= most
        if decision.target < replicas:
            assert now - grown >= rule.down_cooldown_seconds
        if decision.target > replicas:
            grown = now
        state, replicas = decision.state, decision.target


def test_the_formula_counts_requests_where_the_articles_counts_a_difference() -> None:
    load = FleetLoad(replicas=12, ready=12, running=8, waiting=0)
    assert article.formula(load, RULE) == 1, "the article: 8 requests on 12 replicas give 1"
    assert article.formula(replace(load, replicas=1), RULE) == 10, "and 11 (here: at most 10) on 1"
    assert formula(load, RULE) == 1
    assert formula(replace(load, running=25, replicas=2), RULE) == 2, "within the tolerance"
    assert formula(replace(load, running=30, replicas=2), RULE) == 3


@pytest.mark.parametrize("cursor", [{}, {"more": 5}, {"nonsense": 1}, {"recent": [[1]]}])
def test_a_cursor_that_cannot_be_read_is_a_fresh_start(cursor: dict[str, object]) -> None:
    assert state_from_json(cursor) == ScaleState()
