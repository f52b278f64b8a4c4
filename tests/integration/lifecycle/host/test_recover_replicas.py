"""A host's recovery and the real replica on it: out of rotation, ended, and ready again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult, mem_io_manager

from lifecycle.fleet.managed import ManagedFleet
from lifecycle.host.recovery import record
from lifecycle.host.recovery.job import recover_host
from lifecycle.host.resources import HostResource
from lifecycle.models.resources import StateFolder
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.fake_nvml import FakeGpuHost
from tests.support.fleet import SMALL, end_fleet, make_fleet
from tests.support.registered import add_version, promote
from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuHost:
    fake = FakeGpuHost(tmp_path / "host")
    for name, value in {**fake.env, **SMALL}.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def fleet(
    tmp_path: Path, demo_model_dir: Path, machine: FakeGpuHost, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ManagedFleet]:
    """One replica, ready."""
    paths = StatePaths(tmp_path / "state").create()
    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", text_files_of=demo_model_dir)
    with Registry.open(paths.registry) as registry:
        add_version(registry, checkpoint, "tiny@v1")
        promote(registry, "tiny@v1")
    fleet = make_fleet(paths, replicas=1)
    monkeypatch.setenv("IRONWORKS_PORT", str(fleet.layout.port))
    monkeypatch.setenv("IRONWORKS_STATE", str(paths.root))
    fleet.declare("tiny", "production", actor="test", reason="a test needs it")
    try:
        fleet.reconcile(deadline_seconds=120).require_settled()
        yield fleet
    finally:
        end_fleet(fleet)


def run(fleet: ManagedFleet, **first: bool) -> ExecuteInProcessResult:
    with DagsterInstance.ephemeral() as instance:
        return recover_host.execute_in_process(
            run_config={"ops": {"confirm_fault": {"config": first}}},
            resources={
                "state": StateFolder(root=str(fleet.paths.root)),
                "machine": HostResource(),
                "memory": mem_io_manager,
            },
            instance=instance,
            raise_on_error=False,
        )


@pytest.mark.slow
def test_replicas_go_out_of_rotation_and_come_back(
    machine: FakeGpuHost, fleet: ManagedFleet
) -> None:
    (service,) = (replica.service for replica in fleet.desired())
    before = fleet.supervisor.status(service).pid

    machine.set({"gpu0.ret": 15})
    machine.process(4711, "train")
    assert not run(fleet).success
    assert [replica.state for replica in fleet.desired()] == ["stopped"], "it stays drained"
    assert not fleet.supervisor.status(service).running
    assert fleet.pending() == [], "and no reconcile starts it"
    assert record.load(fleet.paths).drained == (service,)

    for path in sorted((machine.root / "proc/4711").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (machine.root / "proc/4711").rmdir()
    assert run(fleet, ignore_limit=True).success
    after = fleet.supervisor.status(service)
    assert after.running and after.pid != before
    assert fleet.observe().replicas[service].ready
    assert fleet.pending() == []
    assert record.load(fleet.paths).drained == ()

    with Registry.open(fleet.paths.registry) as registry:
        moves = [
            (event.body["to"]["state"], event.actor)
            for event in registry.audit.events()
            if event.kind == "replica.desired"
        ]
    assert moves[1:] == [
        ("drained", "recover_host"),
        ("stopped", "recover_host"),
        ("running", "recover_host"),
    ]
