"""Looking at a fleet in which nothing is as it should be: the look itself must end in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lifecycle.fleet.observe import observe
from lifecycle.fleet.supervisors.base import ReplicaStatus
from lifecycle.fleet.supervisors.local import LocalSupervisor
from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from tests.support.ports import free_port


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path).create()


@pytest.fixture
def silent_ports() -> Iterator[list[int]]:
    """Ports of servers that take connections and never answer, as a stopped process does."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(12)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
            each.listen()
        yield [each.getsockname()[1] for each in sockets]


def test_many_silent_replicas_cost_one_deadline(paths: StatePaths, silent_ports: list[int]) -> None:
    desired = [DesiredReplica(f"r{p}", "127.0.0.1", p, "demo") for p in silent_ports]
    began = time.monotonic()
    seen = observe(paths, desired, LocalSupervisor(paths), deadline_seconds=0.5)
    assert time.monotonic() - began < 0.5 * len(desired), "they were asked one after another"
    assert set(seen.replicas) == {replica.service for replica in desired}
    for replica in seen.replicas.values():
        assert not replica.live and not replica.ready and not replica.process
        assert "no answer within" in replica.probe.error


def test_a_port_without_a_process_says_so(paths: StatePaths) -> None:
    desired = DesiredReplica("gone", "127.0.0.1", free_port(), "demo")
    (replica,) = observe(paths, [desired], LocalSupervisor(paths)).replicas.values()
    assert not replica.live and replica.probe.error
    assert replica.load.in_system == 0 and replica.ttft_p95 is None
    assert replica.progressing, "silence is not the engine's fault"


class HangingSupervisor(LocalSupervisor):
    """A process manager on a host that is gone: it answers long after the deadline."""

    def status(self, service: str) -> ReplicaStatus:
        time.sleep(3)
        return super().status(service)


def test_a_process_manager_that_hangs_is_not_waited_for(paths: StatePaths) -> None:
    desired = [DesiredReplica(f"r{n}", "127.0.0.1", free_port(), "demo") for n in range(9)]
    seen = observe(paths, desired, HangingSupervisor(paths), deadline_seconds=0.5)
    assert seen.seconds < 2.5
    assert {replica.process for replica in seen.replicas.values()} == {None}


def test_the_observation_is_plain_json(paths: StatePaths) -> None:
    import json

    desired = DesiredReplica("gone", "127.0.0.1", free_port(), "demo")
    seen = observe(paths, [desired], LocalSupervisor(paths))
    assert json.loads(json.dumps(seen.as_json()))["replicas"]["gone"]["port"] == desired.port
