"""Reading a replica's metrics: what is summed, and quantiles of what happened since."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.fleet.scrape import Buckets, ReplicaLoad, merge, parse_load, quantile

METRICS = """\
# TYPE ironworks_num_requests_running gauge
ironworks_num_requests_running{model_name="a"} 3.0
ironworks_num_requests_running{model_name="b"} 1.0
# TYPE ironworks_num_requests_waiting gauge
ironworks_num_requests_waiting{model_name="a"} 2.0
# TYPE ironworks_kv_cache_usage_perc gauge
ironworks_kv_cache_usage_perc{model_name="a"} 0.25
ironworks_kv_cache_usage_perc{model_name="b"} 0.75
# TYPE ironworks_time_to_first_token_seconds histogram
ironworks_time_to_first_token_seconds_bucket{le="0.1",model_name="a"} 8.0
ironworks_time_to_first_token_seconds_bucket{le="0.5",model_name="a"} 10.0
ironworks_time_to_first_token_seconds_bucket{le="+Inf",model_name="a"} 10.0
ironworks_time_to_first_token_seconds_bucket{le="0.1",model_name="b"} 8.0
ironworks_time_to_first_token_seconds_bucket{le="0.5",model_name="b"} 9.0
ironworks_time_to_first_token_seconds_bucket{le="+Inf",model_name="b"} 10.0
ironworks_time_to_first_token_seconds_count{model_name="a"} 10.0
ironworks_time_to_first_token_seconds_sum{model_name="a"} 1.0
"""


def test_models_of_one_replica_are_added_up() -> None:
    load = parse_load(METRICS)
    assert (load.running, load.waiting, load.in_system, load.kv_usage) == (4, 2, 6, 0.75)
    assert load.ttft == ((0.1, 16.0), (0.5, 19.0), (math.inf, 20.0))


def test_a_replica_that_has_no_engine_yet_is_idle() -> None:
    assert parse_load("") == ReplicaLoad()
    assert quantile((), 0.95) is None


def test_a_quantile_is_of_what_came_since() -> None:
    before: Buckets = ((0.1, 100.0), (0.5, 100.0), (math.inf, 100.0))
    now: Buckets = ((0.1, 100.0), (0.5, 110.0), (math.inf, 110.0))
    assert quantile(now, 0.5) is not None and quantile(now, 0.5) < 0.1  # type: ignore[operator]
    assert quantile(now, 0.5, since=before) == pytest.approx(0.3)
    assert quantile(before, 0.5, since=before) is None
    # A restarted replica counts from zero: its past can't be taken off.
    assert quantile(before, 0.5, since=now) == quantile(before, 0.5)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile(((0.1, 0.0), (0.5, 1.0), (math.inf, 10.0)), 0.95) == 0.5


counts = st.lists(st.integers(0, 50), min_size=3, max_size=3)


@given(st.lists(counts, max_size=5))
def test_merging_keeps_every_request(histograms: list[list[int]]) -> None:
    bounds = (0.1, 1.0, math.inf)
    made: list[Buckets] = []
    for each in histograms:
        total, cumulative = 0, []
        for bound, count in zip(bounds, each, strict=True):
            total += count
            cumulative.append((bound, float(total)))
        made.append(tuple(cumulative))
    merged = merge(made)
    assert (merged[-1][1] if merged else 0) == sum(map(sum, histograms))
    value = quantile(merged, 0.9)
    assert value is None or 0 <= value <= 1.0
