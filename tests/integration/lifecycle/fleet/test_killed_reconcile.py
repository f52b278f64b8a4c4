"""``ironworks fleet reconcile`` killed after each of its steps, on real replicas."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from lifecycle.fleet.managed import ManagedFleet
from registry.store import Registry
from tests.support.fleet import Clients

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def reconcile_and_kill(fleet: ManagedFleet) -> str | None:
    """Run the command until one step is carried out and the next one is told; kill it there.

    Returns:
        The step that was carried out; None if the command ended by itself.
    """
    layout = fleet.layout
    process = subprocess.Popen(
        [sys.executable, "-m", "ironworks", "fleet", "reconcile", "--seconds", "120"],
        env={
            **os.environ,
            "IRONWORKS_STATE": str(fleet.paths.root),
            "IRONWORKS_PORT": str(layout.port),
            "IRONWORKS_REPLICAS": str(layout.replicas),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    step = None
    for line in process.stdout:
        if step is not None:
            process.kill()
            break
        if not line.startswith("await_"):
            step = line.strip()
    process.wait(timeout=60)
    killed = process.returncode < 0
    assert killed or process.returncode == 0, step
    return step if killed else None


def finish_by_killing(fleet: ManagedFleet) -> list[str]:
    steps: list[str] = []
    while (step := reconcile_and_kill(fleet)) is not None:
        steps.append(step)
        assert len(steps) < 40, steps
    return steps


def test_a_fleet_comes_up_changes_and_goes_though_each_reconcile_is_killed(
    declared: Callable[..., ManagedFleet],
) -> None:
    fleet = declared()
    first, second = fleet.desired()
    assert len(finish_by_killing(fleet)) >= 2
    assert fleet.pending() == []
    services = sorted([first.service, second.service])
    assert sorted(fleet.supervisor.services()) == services

    clients = Clients(f"http://127.0.0.1:{fleet.layout.port}", "tiny", max_tokens=40)
    with clients.running(4) as outcome:
        clients.await_answers(4)
        with Registry.open(fleet.paths.registry) as registry:
            registry.fleet.set(replace(first, state="stopped"), actor="test", reason="test")
        assert len(finish_by_killing(fleet)) >= 2
        clients.await_answers(4)
    assert outcome.failures == []
    assert fleet.pending() == []
    assert fleet.supervisor.services() == [second.service]
    with Registry.open(fleet.paths.registry) as registry:
        kinds = [event.kind for event in registry.audit.events()]
    assert kinds.count("load.started") == 2, "no replica was started twice"
    assert kinds.count("load.unloaded") == 1
