"""The jobs on two real replicas behind HAProxy: broken for real, recovered, scaled, drained."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import dagster as dg
import pytest

from lifecycle.definitions import build_defs
from lifecycle.fleet import health, recovery
from lifecycle.fleet.faults import Fault
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.observe import ReplicaObservation
from lifecycle.host.resources import HostResource
from lifecycle.models.resources import ReplicaResource, StateFolder
from registry.store import Registry
from tests.support.fleet import Clients

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet(declared: Callable[..., ManagedFleet]) -> ManagedFleet:
    fleet = declared(IRONWORKS_STALL_SECONDS="2")
    fleet.reconcile(deadline_seconds=120).require_settled()
    return fleet


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(
    fleet: ManagedFleet, instance: dg.DagsterInstance, job: str, op: str, **config: Any
) -> dict[str, Any]:
    """Run a job; the metadata of its last op."""
    layout = fleet.layout
    defs = build_defs(
        state=StateFolder(root=str(fleet.paths.root)),
        replica=ReplicaResource(port=layout.port, replicas=layout.replicas),
        machine=HostResource(),
    )
    result = defs.resolve_job_def(job).execute_in_process(
        run_config={"ops": {op: {"config": config}}}, instance=instance
    )
    assert result.success
    outputs = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    return {k: v.value for k, v in outputs[-1].step_output_data.metadata.items()}


def recover(fleet: ManagedFleet, instance: dg.DagsterInstance, service: str, **config: Any) -> Any:
    return run(
        fleet, instance, "recover_replica", "confirm_replica_fault", service=service, **config
    )


def one(fleet: ManagedFleet, service: str) -> ReplicaObservation:
    return fleet.observe().replicas[service]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.1)


def events(fleet: ManagedFleet, kind: str) -> int:
    with Registry.open(fleet.paths.registry) as registry:
        return sum(event.kind == kind for event in registry.audit.events())


def decide(fleet: ManagedFleet) -> recovery.RecoveryDecision:
    """What the sensor would do, had it seen all replicas healthy before."""
    _, sights = health.look(fleet)
    return recovery.decide(sights, {}, (), time.time())


def test_a_killed_replica_is_found_recovered_once_and_written_down(
    fleet: ManagedFleet, instance: dg.DagsterInstance
) -> None:
    first = fleet.desired()[0].service
    pid = one(fleet, first).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not one(fleet, first).process)
    (found,) = decide(fleet).recoveries
    assert (found.service, found.fault) == (first, Fault.GONE)

    dry = recover(fleet, instance, first, fault=found.fault.value, dry_run=True)
    assert "dry run" in dry["verdict"] and not one(fleet, first).process

    starts = events(fleet, "load.started")
    proof = recover(fleet, instance, first, fault=found.fault.value, fault_at=found.since)
    assert proof["verdict"] == "serves again" and proof["serving_again_seconds"] > 0
    back = one(fleet, first)
    assert back.healthy and back.proxy is not None and back.proxy.in_rotation
    assert not decide(fleet).recoveries

    again = recover(fleet, instance, first, fault=found.fault.value)
    assert again["verdict"] == "nothing to do"
    assert events(fleet, "load.started") == starts + 1, "nothing is done twice"
    assert events(fleet, "recovery.replica_recovered") == 1


def test_a_stopped_engine_is_replaced_and_its_replica_lives_on(
    fleet: ManagedFleet, instance: dg.DagsterInstance
) -> None:
    service = fleet.desired()[0].service
    before = one(fleet, service)
    engine = before.models["tiny"].engine_pid
    os.kill(engine, signal.SIGSTOP)
    try:
        until(lambda: bool(decide(fleet).recoveries))
        (found,) = decide(fleet).recoveries
        assert found.fault is Fault.STUCK
        proof = recover(fleet, instance, service, fault=found.fault.value, fault_at=found.since)
    finally:
        with suppress(ProcessLookupError):
            os.kill(engine, signal.SIGKILL)
    assert f"killed the engine, pid {engine}" in proof["did"]
    after = one(fleet, service)
    assert after.pid == before.pid and after.healthy
    assert after.models["tiny"].engine_pid not in (0, engine)


def test_a_killed_proxy_is_brought_back(fleet: ManagedFleet, instance: dg.DagsterInstance) -> None:
    assert fleet.proxy is not None
    pid = fleet.proxy.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: bool(fleet.observe().proxy_error))
    assert "recovered if that lasts" in decide(fleet).notes["proxy"]
    proof = recover(fleet, instance, "proxy", fault="proxy_down")
    assert proof["verdict"] == "serves again"
    fleet.reconcile(deadline_seconds=60).require_settled()
    assert all(r.proxy and r.proxy.in_rotation for r in fleet.observe().replicas.values())


def test_a_hung_api_process_is_ended_and_started_anew(
    fleet: ManagedFleet, instance: dg.DagsterInstance
) -> None:
    service = fleet.desired()[1].service
    pid = one(fleet, service).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    proof = recover(fleet, instance, service, fault="api_hung")
    assert "did not answer" in proof["did"]
    assert one(fleet, service).healthy and one(fleet, service).pid != pid


def test_a_planned_stop_is_left_alone(fleet: ManagedFleet, instance: dg.DagsterInstance) -> None:
    service = fleet.desired()[0].service
    pid = one(fleet, service).pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    while one(fleet, service).process:
        assert not decide(fleet).recoveries, "a replica that drains is no fault"
        time.sleep(0.1)
    decision = decide(fleet)
    assert not decision.recoveries and "on purpose" in decision.notes[service]
    assert recover(fleet, instance, service)["verdict"] == "nothing to do"
    assert not one(fleet, service).process
    fleet.reconcile(deadline_seconds=60).require_settled()


def test_the_fleet_grows_shrinks_and_drains_under_clients_who_notice_nothing(
    fleet: ManagedFleet, instance: dg.DagsterInstance
) -> None:
    clients = Clients(f"http://127.0.0.1:{fleet.layout.port}", "tiny", max_tokens=40)
    with clients.running(4) as outcome:
        clients.await_answers(4)
        told = run(fleet, instance, "scale_replicas", "scale_fleet", target=3, dry_run=True)
        assert told["pending"].startswith("dry run") and len(fleet.desired()) == 2
        grown = run(fleet, instance, "scale_replicas", "scale_fleet", target=3)
        assert grown["pending"] == "" and grown["changes"].startswith("+")
        assert sum(r.healthy for r in fleet.observe().replicas.values()) == 3
        again = run(fleet, instance, "scale_replicas", "scale_fleet", target=3)
        assert again["changes"] == "none"
        shrunk = run(fleet, instance, "scale_replicas", "scale_fleet", target=2)
        assert shrunk["pending"] == "" and len(fleet.desired()) == 2
        assert not fleet.observe().strangers
        clients.await_answers(4)
    assert outcome.failures == []
    assert events(fleet, "scale.decided") == 2

    drained = run(fleet, instance, "drain_host", "take_host_out", reason="maintenance")
    assert drained["pending"] == ""
    rotations = {r.proxy.rotation for r in fleet.observe().replicas.values() if r.proxy}
    assert rotations == {"drain"} and not decide(fleet).recoveries
    back = run(fleet, instance, "drain_host", "take_host_out", undo=True, reason="done")
    assert back["pending"] == ""
    assert all(r.proxy and r.proxy.in_rotation for r in fleet.observe().replicas.values())
