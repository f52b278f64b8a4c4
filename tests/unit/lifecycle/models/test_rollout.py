"""When a promoted version is brought to the replica."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.models.partitions import VersionKey
from lifecycle.models.rollout import (
    FIRST_PAUSE_SECONDS,
    MAX_ATTEMPTS,
    Decision,
    Hosted,
    ReplicaView,
    Wanted,
    attempts_from_json,
    decide,
)

V1 = Wanted(VersionKey("tiny", "v1"), "1" * 64, revision=1)
V2 = Wanted(VersionKey("tiny", "v2"), "2" * 64, revision=2)
NOTHING_RUNS = ReplicaView(running=False)
SERVES_V1 = ReplicaView(running=True, models={"tiny": Hosted(V1.digest, "ready")})
STARTING = ReplicaView(running=True)


def ask(
    want: Wanted,
    *views: ReplicaView,
    after: Decision | None = None,
    in_flight: tuple[str, ...] = (),
    now: float = 1000.0,
) -> Decision:
    return decide([want], {"tiny": views}, in_flight, after.attempts if after else {}, now)


def test_the_first_promotion_starts_the_replica() -> None:
    decision = ask(V1, NOTHING_RUNS)
    assert [reload.wanted for reload in decision.reloads] == [V1]


def test_nothing_is_done_while_the_alias_is_served() -> None:
    decision = ask(V1, SERVES_V1)
    assert decision.reloads == ()
    assert decision.notes == ("tiny@v1: served",)


def test_a_moved_alias_asks_for_a_swap_at_once() -> None:
    served = ask(V1, SERVES_V1)
    decision = ask(V2, SERVES_V1, after=served)
    assert [reload.wanted for reload in decision.reloads] == [V2]


def test_a_reload_under_way_is_not_asked_for_again() -> None:
    assert ask(V2, SERVES_V1, in_flight=("tiny",)).reloads == ()


def test_a_starting_replica_is_left_alone() -> None:
    decision = ask(V1, STARTING)
    assert decision.reloads == ()
    assert "starting" in decision.notes[0]


@pytest.mark.parametrize(
    "hosted",
    [
        Hosted(V1.digest, "loading"),
        Hosted(V1.digest, "ready", swapping=True),
        Hosted(V1.digest, "stopped"),
        Hosted(V2.digest, "restarting"),
    ],
)
def test_a_busy_replica_is_left_alone(hosted: Hosted) -> None:
    decision = ask(V2, ReplicaView(running=True, models={"tiny": hosted}))
    assert decision.reloads == ()
    assert decision.notes[0].startswith("tiny@v2: the replica is")


def test_a_replica_whose_old_version_can_not_come_back_gets_the_new_one() -> None:
    view = ReplicaView(running=True, models={"tiny": Hosted(V1.digest, "restarting")})
    assert len(ask(V2, view).reloads) == 1


def test_one_replica_that_is_behind_is_enough() -> None:
    serves_v2 = ReplicaView(True, {"tiny": Hosted(V2.digest, "ready")})
    assert len(ask(V2, serves_v2, SERVES_V1).reloads) == 1
    assert ask(V2, serves_v2, serves_v2).reloads == ()


def test_a_dead_replica_beside_a_live_one_is_not_a_reloads_work() -> None:
    decision = ask(V1, NOTHING_RUNS, SERVES_V1)
    assert decision.reloads == () and decision.notes == ("tiny@v1: served",)
    assert len(ask(V1, NOTHING_RUNS, NOTHING_RUNS).reloads) == 1


def test_a_replica_that_loads_is_waited_for_before_the_others_are_changed() -> None:
    decision = ask(V2, SERVES_V1, STARTING)
    assert decision.reloads == () and "starting" in decision.notes[0]


def test_a_replica_for_other_models_is_not_disturbed() -> None:
    decision = ask(V1, ReplicaView(running=True, models={"other": Hosted("3" * 64, "ready")}))
    assert decision.reloads == ()
    assert "serves other only" in decision.notes[0]


def test_a_failed_reload_is_tried_again_after_a_pause_and_under_a_new_key() -> None:
    first = ask(V2, SERVES_V1, now=0)
    early = ask(V2, SERVES_V1, after=first, now=FIRST_PAUSE_SECONDS - 1)
    assert early.reloads == ()
    again = ask(V2, SERVES_V1, after=early, now=FIRST_PAUSE_SECONDS + 1)
    assert len(again.reloads) == 1
    assert again.reloads[0].run_key != first.reloads[0].run_key


def test_attempts_end_and_a_person_is_asked_for() -> None:
    decision = ask(V2, SERVES_V1, now=0)
    asked = 1
    for minute in range(1, 1000):
        decision = ask(V2, SERVES_V1, after=decision, now=60.0 * minute)
        asked += len(decision.reloads)
    assert asked == MAX_ATTEMPTS
    assert "look at the failed runs" in decision.notes[0]


def test_a_replica_that_was_stopped_after_serving_is_started_again() -> None:
    started = ask(V1, NOTHING_RUNS, now=0)
    served = ask(V1, SERVES_V1, after=started, now=10)
    again = ask(V1, NOTHING_RUNS, after=served, now=20)
    assert len(again.reloads) == 1
    assert again.reloads[0].run_key != started.reloads[0].run_key


def test_the_cursor_survives_json() -> None:
    decision = ask(V2, SERVES_V1)
    text = json.dumps({model: asdict(value) for model, value in decision.attempts.items()})
    assert attempts_from_json(json.loads(text)) == decision.attempts
    assert attempts_from_json({"tiny": {"of": "another release"}}) == {}


views = st.sampled_from(
    [NOTHING_RUNS, SERVES_V1, STARTING, ReplicaView(True, {"tiny": Hosted(V2.digest, "ready")})]
)


@given(st.lists(st.tuples(st.sampled_from([V1, V2]), views, st.floats(0, 600)), max_size=40))
def test_run_keys_are_never_reused(history: list[tuple[Wanted, ReplicaView, float]]) -> None:
    now, decision, keys = 0.0, None, []
    for want, view, pause in history:
        now += pause
        decision = ask(want, view, after=decision, now=now)
        keys += [reload.run_key for reload in decision.reloads]
        if view.serves("tiny", want.digest):
            assert decision.reloads == ()
    assert len(keys) == len(set(keys))
