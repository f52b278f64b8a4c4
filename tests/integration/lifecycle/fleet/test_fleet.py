"""Two real replicas behind a real HAProxy: what clients see while the fleet is changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from lifecycle.fleet.managed import ManagedFleet
from lifecycle.models.service import ServedModels
from registry.errors import ConflictError
from registry.fleet import DesiredReplica
from registry.fsck import fsck
from registry.store import Registry
from tests.support.fleet import Clients
from tests.support.registered import promote

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def change(fleet: ManagedFleet, replica: DesiredReplica) -> None:
    with Registry.open(fleet.paths.registry) as registry:
        registry.fleet.set(replica, actor="test", reason="a test asks for it")


def url(fleet: ManagedFleet) -> str:
    return f"http://{fleet.layout.host}:{fleet.layout.port}"


def test_both_replicas_are_in_rotation_and_nothing_is_left_to_do(fleet: ManagedFleet) -> None:
    seen = fleet.observe()
    assert len(seen.replicas) == 2
    for replica in seen.replicas.values():
        assert replica.healthy and replica.proxy is not None and replica.proxy.in_rotation
    assert fleet.pending() == []
    assert fleet.reconcile().done == ()


@pytest.mark.parametrize(("wish", "name"), [("rolling", "tiny@v2"), ("swap", "tiny@v1")])
def test_another_version_comes_without_a_failed_request(
    fleet: ManagedFleet, wish: str, name: str
) -> None:
    before = {s: one.pid for s, one in fleet.observe().replicas.items()}
    with Registry.open(fleet.paths.registry) as registry:
        promote(registry, name)
        version = registry.version(name)
    clients = Clients(url(fleet), "tiny", max_tokens=40)
    models = ServedModels(fleet)
    with clients.running(16) as outcome:
        clients.await_answers(16)
        done = models.serve(
            version,
            alias="production",
            actor="test",
            deadline_seconds=200,
            wish=wish,  # type: ignore[arg-type]
            say=lambda _: None,
        )
        clients.await_answers(32)
    assert outcome.failures == []
    assert done.step == wish and done.reason
    assert [change.step for change in models.changes] == [wish, wish]
    after = fleet.observe()
    assert all(one.serves("tiny", version.digest) for one in after.replicas.values())
    kept = {service for service, one in after.replicas.items() if one.pid == before[service]}
    assert len(kept) == (0 if wish == "rolling" else 2), "rolling starts anew, a swap does not"
    assert outcome.versions[version.short] > 0


def test_a_replica_is_drained_stopped_and_replaced_under_clients(fleet: ManagedFleet) -> None:
    first, second = fleet.desired()
    clients = Clients(url(fleet), "tiny", max_tokens=100)
    with clients.running(6) as outcome:
        clients.await_answers(6)
        # Drained: its process lives, its requests end, the other takes all.
        change(fleet, replace(first, state="drained"))
        one = fleet.reconcile(deadline_seconds=60).require_settled().seen.replicas[first.service]
        assert one.proxy is not None and one.proxy.rotation == "drain"
        assert one.proxy.sessions == 0 and one.process and one.ready
        clients.await_answers(6)

        # Forgotten, and another declared: as in a replacement of the machine.
        with Registry.open(fleet.paths.registry) as registry:
            registry.fleet.remove(first.service, actor="test", reason="it goes")
        third = fleet.layout.another([second, first])
        change(fleet, third)
        up = fleet.reconcile(deadline_seconds=120).require_settled()
        assert up.seen.strangers == {}
        clients.await_answers(6)
        change(fleet, replace(second, state="stopped"))
        fleet.reconcile(deadline_seconds=60).require_settled()
        clients.await_answers(6)
    assert outcome.failures == []
    assert fleet.supervisor.services() == [third.service]
    assert fleet.pending() == []

    # Alone, it can't be replaced without an interruption.
    with Registry.open(fleet.paths.registry) as registry:
        promote(registry, "tiny@v2")
        version = registry.version("tiny@v2")
        assert fsck(registry).problems == ()
    with pytest.raises(ConflictError, match="only while another one is in rotation"):
        ServedModels(fleet).serve(
            version,
            alias="production",
            actor="test",
            deadline_seconds=60,
            wish="rolling",
            say=lambda _: None,
        )


def test_a_killed_replica_and_a_killed_proxy_come_back(fleet: ManagedFleet) -> None:
    assert fleet.proxy is not None
    (name, killed) = next((s, o) for s, o in fleet.observe().replicas.items() if o.process)
    proxy = fleet.proxy.pid()
    assert killed.pid is not None and proxy is not None
    for pid in (killed.pid, proxy):
        os.kill(pid, signal.SIGKILL)
    back = fleet.reconcile(deadline_seconds=120).require_settled()
    steps = {(done.action.step, done.action.service) for done in back.done}
    assert {("start", name), ("start_proxy", "proxy")} <= steps
    assert httpx.get(f"{url(fleet)}/v1/models").json()["data"][0]["id"] == "tiny"


def test_a_full_replica_is_passed_over_and_a_full_fleet_says_429(
    declared: Callable[..., ManagedFleet],
) -> None:
    fleet = declared(IRONWORKS_MAX_SLOTS="1", IRONWORKS_MAX_WAITING="0")
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
            for _ in range(5):
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
