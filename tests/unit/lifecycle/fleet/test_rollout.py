"""Swap or rolling: the plan says which and why, and refuses what would interrupt."""

from __future__ import annotations

import pytest

from lifecycle.fleet.rollout import ENGINE_BYTES, Room, plan_rollout
from registry.errors import ConflictError

GB = 10**9
WIDE = Room("replica-1", "cuda:0", 40 * GB, 2 * GB)
TIGHT = Room("replica-2", "cuda:1", 8 * GB, 2 * GB)
SILENT = Room("replica-3", "", None, 0)


def test_where_both_versions_fit_nothing_is_taken_out_of_rotation() -> None:
    plan = plan_rollout(14 * GB, [WIDE], peers=0)
    assert (plan.strategy, plan.order) == ("swap", ("replica-1",))
    assert "40,000 MB free on cuda:0" in plan.reason


def test_one_tight_device_makes_it_rolling_and_is_named() -> None:
    plan = plan_rollout(14 * GB, [WIDE, TIGHT], peers=2)
    assert plan.strategy == "rolling"
    assert "replica-2 has 8,000 MB free on cuda:1" in plan.reason and "peers serve" in plan.reason


def test_the_kv_cache_and_the_process_count_too() -> None:
    weights = 10 * GB
    needed = Room("r", "cuda:0", 0, 2 * GB).needs(weights)
    assert needed > weights + 2 * GB + ENGINE_BYTES
    assert plan_rollout(weights, [Room("r", "cuda:0", needed, 2 * GB)], peers=2).strategy == "swap"
    short = Room("r", "cuda:0", needed - 1, 2 * GB)
    assert plan_rollout(weights, [short], peers=2).strategy == "rolling"


@pytest.mark.parametrize("peers", [0, 1])
def test_a_tight_replica_without_a_peer_is_refused_with_what_is_missing(peers: int) -> None:
    with pytest.raises(ConflictError, match=r"needs .* MB, and no other replica is in rotation"):
        plan_rollout(14 * GB, [TIGHT], peers=peers)


def test_a_replica_that_can_not_say_is_replaced_if_it_has_a_peer() -> None:
    assert plan_rollout(GB, [SILENT], peers=2).strategy == "rolling"
    assert plan_rollout(GB, [SILENT], peers=0).strategy == "swap"


def test_the_operator_may_choose_but_not_interrupt() -> None:
    assert plan_rollout(14 * GB, [TIGHT], peers=2, wish="swap").strategy == "swap"
    assert plan_rollout(GB, [WIDE], peers=2, wish="rolling").strategy == "rolling"
    with pytest.raises(ConflictError, match="only while another one is in rotation"):
        plan_rollout(GB, [WIDE], peers=1, wish="rolling")
