"""Two real replicas behind a real HAProxy: what clients see while the fleet is changed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import httpx
import pytest

from lifecycle.fleet.managed import ManagedFleet
from registry.fleet import DesiredReplica
from registry.store import Registry
from tests.support.fleet import Clients

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def change(fleet: ManagedFleet, replica: DesiredReplica) -> None:
    with Registry.open(fleet.paths.registry) as registry:
        registry.fleet.set(replica, actor="test", reason="a test asks for it")


def url(fleet: ManagedFleet) -> str:
    return f"http://{fleet.layout.host}:{fleet.layout.port}"


def test_a_fleet_from_nothing_to_drained_to_scaled_under_clients(fleet: ManagedFleet) -> None:
    first, second = fleet.desired()
    up = fleet.reconcile(deadline_seconds=120).require_settled()
    assert {name for name, one in up.seen.replicas.items() if one.healthy} == {
        first.service,
        second.service,
    }
    assert fleet.pending() == [], "a second reconcile has nothing to do"

    clients = Clients(url(fleet), "tiny", max_tokens=100)
    with clients.running(6) as outcome:
        clients.await_answers(6)
        # One is drained: its process lives, its requests end, the other takes all.
        change(fleet, replace(first, state="drained"))
        drained = fleet.reconcile(deadline_seconds=60).require_settled()
        one = drained.seen.replicas[first.service]
        assert one.proxy is not None and one.proxy.rotation == "drain"
        assert one.proxy.sessions == 0 and one.process and one.ready
        clients.await_answers(6)

        # Stopped and forgotten, then declared anew: as in a replacement of the machine.
        with Registry.open(fleet.paths.registry) as registry:
            registry.fleet.remove(first.service, actor="test", reason="it goes")
        gone = fleet.reconcile(deadline_seconds=60).require_settled()
        assert gone.seen.strangers == {}
        assert fleet.supervisor.services() == [second.service]

        third = fleet.layout.another([second])
        change(fleet, third)
        fleet.reconcile(deadline_seconds=120).require_settled()
        clients.await_answers(6)
        change(fleet, replace(second, state="stopped"))
        fleet.reconcile(deadline_seconds=60).require_settled()
        clients.await_answers(6)
    assert outcome.failures == []
    assert fleet.supervisor.services() == [third.service]
    assert fleet.pending() == []


def test_a_killed_replica_and_a_killed_proxy_come_back(fleet: ManagedFleet) -> None:
    assert fleet.proxy is not None
    up = fleet.reconcile(deadline_seconds=120).require_settled()
    first, second = fleet.desired()
    pid = up.seen.replicas[first.service].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    steps = {(done.action.step, done.action.service) for done in fleet.reconcile().done}
    assert ("start", first.service) in steps
    assert not any(service == second.service for _, service in steps)

    proxy = fleet.proxy.pid()
    assert proxy is not None
    os.kill(proxy, signal.SIGKILL)
    fleet.reconcile(deadline_seconds=60).require_settled()
    assert httpx.get(f"{url(fleet)}/v1/models").json()["data"][0]["id"] == "tiny"


def test_a_full_replica_is_passed_over_and_a_full_fleet_says_429(
    fleet: ManagedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRONWORKS_MAX_SLOTS", "1")
    monkeypatch.setenv("IRONWORKS_MAX_WAITING", "0")
    fleet.reconcile(deadline_seconds=120).require_settled()
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "iron"}],
        "max_tokens": 200,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.Client(base_url=url(fleet), timeout=60, trust_env=False) as client:
        first = fleet.desired()[0]
        # One replica is filled behind the proxy's back, so that it doesn't count it.
        direct = f"http://{first.host}:{first.port}/v1/chat/completions"
        with client.stream("POST", direct, json=body) as held:
            assert held.status_code == 200
            for _ in range(3):
                small = {**body, "max_tokens": 1, "stream": False}
                answer = client.post("/v1/chat/completions", json=small)
                assert answer.status_code == 200, answer.text
            with client.stream("POST", "/v1/chat/completions", json=body) as other:
                assert other.status_code == 200
                refused = client.post("/v1/chat/completions", json=body)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert "x-overloaded" not in refused.headers
