"""The recovery ladder as a Dagster run, on a machine whose GPUs are a fake NVML library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult, mem_io_manager

from lifecycle.host.recovery import record
from lifecycle.host.recovery.job import recover_host
from lifecycle.host.resources import HostResource
from lifecycle.models.resources import StateFolder
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.fake_nvml import FakeGpuHost


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuHost:
    fake = FakeGpuHost(tmp_path / "host", gpus=2)
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path / "state")


def run(paths: StatePaths, **ops: dict[str, Any]) -> ExecuteInProcessResult:
    with DagsterInstance.ephemeral() as instance:
        return recover_host.execute_in_process(
            run_config={"ops": {name: {"config": config} for name, config in ops.items()}},
            resources={
                "state": StateFolder(root=str(paths.root)),
                "machine": HostResource(),
                "memory": mem_io_manager,
            },
            instance=instance,
            raise_on_error=False,
        )


def did(result: ExecuteInProcessResult) -> dict[str, str]:
    """What each rung did, by its name."""
    found = {}
    for event in result.all_events:
        if event.is_successful_output and "did" in event.step_output_data.metadata:
            found[event.step_key] = event.step_output_data.metadata["did"].value
    return found


def events(paths: StatePaths, kind: str) -> list[dict[str, Any]]:
    with Registry.open(paths.registry) as registry:
        return [event.body for event in registry.audit.events() if event.kind == kind]


def test_a_reset_brings_a_lost_gpu_back(machine: FakeGpuHost, paths: StatePaths) -> None:
    machine.set({"gpu1.ret": 15, "units": "nvidia-persistenced.service"})

    result = run(paths)

    assert result.success
    assert did(result)["reset_gpu"] == "done"
    assert did(result)["reload_driver"] == "skipped"
    assert [c for c in machine.calls if not c.startswith("systemctl is-active")] == [
        "systemctl stop nvidia-persistenced.service",
        "nvidia-smi -i 1 -pm 0",
        "nvidia-smi -i 1 -r",
        "systemctl start nvidia-persistenced.service",
    ]
    (told,) = events(paths, "recovery.host_recovered")
    assert told["driver_recovered_ms"] is not None
    assert told["serving_again_ms"] >= told["driver_recovered_ms"]
