"""Faults under the whole product: the real Dagster daemon, HAProxy and two replicas.

One stack for all: each test leaves two healthy replicas behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.drills.fleet import (
    kill_daemon_in_recovery,
    kill_replica,
    rolling_update,
    stop_engine,
)
from benchmarks.drills.stack import Stack, running_stack
from lifecycle.fleet.proxy.base import ProxyError
from lifecycle.fleet.proxy.process import find_haproxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Stack]:
    try:
        find_haproxy()
    except ProxyError as error:
        pytest.skip(str(error))
    with running_stack(tmp_path_factory.mktemp("fleet"), tiny_checkpoint) as running:
        yield running


def no_request_failed_but_on_the_broken_replica(seen: dict[str, object]) -> None:
    assert seen["failed_at_healthy"] == 0, seen
    assert seen["refused"] == 0, seen


def test_a_killed_replica_is_replaced_and_the_other_serves_on(stack: Stack) -> None:
    seen = kill_replica(stack, count=4)
    no_request_failed_but_on_the_broken_replica(seen)
    assert seen["starts"] == 1
    assert seen["recovery_runs"] == 1
    assert seen["recovery_events"], "the audit log must say that and why it was restarted"


def test_an_update_under_streaming_clients_fails_no_request(stack: Stack) -> None:
    seen = rolling_update(stack, "v2", count=8)
    assert seen["failed"] == 0, seen
    assert seen["old_version_answers"] and seen["new_version_answers"]


def test_an_engine_that_stands_still_is_noticed_and_replaced(stack: Stack) -> None:
    seen = stop_engine(stack, count=4)
    no_request_failed_but_on_the_broken_replica(seen)
    assert seen["recovery_runs"] == 1


def test_a_daemon_killed_in_mid_recovery_does_nothing_twice(stack: Stack) -> None:
    seen = kill_daemon_in_recovery(stack)
    no_request_failed_but_on_the_broken_replica(seen)
    assert seen["starts"] == 1
    assert seen["recovery_runs"] == seen["run_keys"]
