"""The recovery ladder as a Dagster run, on a machine whose GPUs are a fake NVML library."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
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
from tests.support.fake_nvml import MODULES, FakeGpuHost


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


def rungs(result: ExecuteInProcessResult, what: str) -> list[str]:
    return [name for name, outcome in did(result).items() if outcome == what]


def worked(machine: FakeGpuHost) -> list[str]:
    """Calls of tools that change something."""
    return [call for call in machine.calls if not call.startswith("systemctl is-active")]


def alert(paths: StatePaths) -> dict[str, Any]:
    """The one alert there must be."""
    (told,) = events(paths, "alert.host")
    return told


def test_a_healthy_host_is_left_alone(machine: FakeGpuHost, paths: StatePaths) -> None:
    result = run(paths)
    assert result.success
    assert worked(machine) == []
    assert events(paths, "recovery.host_not_needed")
    assert record.load(paths).total_attempts == 0, "looking is no attempt"


def test_a_reset_brings_a_lost_gpu_back(machine: FakeGpuHost, paths: StatePaths) -> None:
    machine.set({"gpu1.ret": 15, "units": "nvidia-persistenced.service"})

    result = run(paths, confirm_fault={"fault_at": time.time() - 10})

    assert result.success
    assert did(result)["reset_gpu"] == "done"
    assert did(result)["reload_driver"] == "skipped"
    assert worked(machine) == [
        "systemctl stop nvidia-persistenced.service",
        "nvidia-smi -i 1 -pm 0",
        "nvidia-smi -i 1 -r",
        "systemctl start nvidia-persistenced.service",
    ]
    (told,) = events(paths, "recovery.host_recovered")
    assert told["driver_recovered_ms"] >= 10_000, "it counts from the fault, not from the job"
    assert told["serving_again_ms"] >= told["driver_recovered_ms"]
    exported = record.load(paths)
    assert exported.driver_recovered_seconds is not None
    assert exported.serving_again_seconds is not None


def test_where_a_reset_fails_the_modules_are_reloaded_users_first(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    machine.set({"gpu0.ret": 15, "reset_works": 0})
    result = run(paths)
    assert result.success
    assert rungs(result, "failed") == ["reset_gpu"]
    assert did(result)["reload_driver"] == "done"
    assert worked(machine)[2:] == [
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia_uvm",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia-uvm",
        "modprobe nvidia-modeset",
        "modprobe nvidia-drm",
    ]


def test_an_upgraded_driver_is_reloaded_without_a_reset(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    machine.set(init_ret=18, installed_driver="580.95.05")
    result = run(paths)
    assert result.success
    assert not [call for call in machine.calls if "nvidia-smi" in call]
    assert (machine.root / "sys/module/nvidia/version").read_text() == "580.95.05\n"


def test_a_hung_driver_is_reloaded_and_hangs_nobody(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    machine.set(hang_ms=60_000, smi_hang_ms=60_000)
    result = run(paths)
    assert result.success
    assert did(result)["reset_gpu"] == "skipped", "nvidia-smi would hang too"
    assert did(result)["reload_driver"] == "done"


def test_a_climb_that_was_cut_off_between_unload_and_load_is_finished(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    for module in (*MODULES, "nvidia"):
        shutil.rmtree(machine.root / "sys/module" / module, ignore_errors=True)
    machine.set(init_ret=9)
    record.save(
        paths,
        replace(
            record.RecoveryRecord().begin("the run that died", time.time()),
            stopped_units=("nvidia-persistenced.service",),
        ),
    )
    result = run(paths)
    assert result.success
    assert "modprobe nvidia" in machine.calls
    assert not [call for call in machine.calls if call.startswith("rmmod")]
    assert machine.state["units"] == "nvidia-persistenced.service", "what it stopped is started"


def test_a_look_that_holds_the_device_for_a_moment_is_waited_for(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    machine.set({"gpu0.ret": 15})
    machine.process(77, "python", holds="/dev/nvidiactl")
    (machine.root / "proc/77/cmdline").write_text("python\0-P\0nvml_child.py\0")
    timer = threading.Timer(3.0, shutil.rmtree, [machine.root / "proc/77"])
    timer.start()
    result = run(paths)
    timer.join()
    assert result.success
    assert did(result)["reset_gpu"] == "done"


def test_somebody_elses_process_is_never_ended(machine: FakeGpuHost, paths: StatePaths) -> None:
    machine.set({"gpu0.ret": 15, "units": "nvidia-dcgm.service"})
    machine.process(4711, "train")

    result = run(paths)

    assert not result.success
    assert worked(machine) == [
        "systemctl stop nvidia-dcgm.service",
        "systemctl start nvidia-dcgm.service",
    ], "no reset and no unload under somebody's work; the daemons are started again"
    assert "4711 (train) holds /dev/nvidia0" in alert(paths)["alert"]
    assert not alert(paths)["needs_reboot"]
    assert record.load(paths).given_up is not None

    shutil.rmtree(machine.root / "proc/4711")
    assert run(paths, confirm_fault={"ignore_limit": True}).success
    assert record.load(paths).given_up is None


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (
            lambda m: m.kernel_says("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
            "Xid 79",
        ),
        (lambda m: m.set({"gpu0.field230": 2}), "recovery action"),
        (lambda m: m.set({"gpu0.field230": 7}), "recovery action"),
        (lambda m: m.process(4711, "train", state="D"), "state D"),
    ],
    ids=["Xid 79", "action 2", "action 7", "D state"],
)
def test_what_only_a_reboot_cures_is_said_and_not_tried(
    machine: FakeGpuHost, paths: StatePaths, break_it: Callable[[FakeGpuHost], None], says: str
) -> None:
    if says != "recovery action":  # a lost GPU no longer tells it
        machine.set({"gpu0.ret": 15})
    break_it(machine)

    result = run(paths)

    assert not result.success
    assert worked(machine) == []
    told = alert(paths)
    assert told["needs_reboot"]
    assert says in told["alert"] and "Reboot the machine" in told["alert"]
    given_up = record.load(paths).given_up
    assert given_up is not None and given_up.needs_reboot


def test_two_attempts_and_no_more(machine: FakeGpuHost, paths: StatePaths) -> None:
    machine.set({"gpu0.ret": 15, "reset_works": 0, "reload_works": 0})

    assert not run(paths).success
    assert record.load(paths).given_up is None, "one failure is no end"
    assert events(paths, "alert.host") == []
    assert not run(paths).success
    assert "2 attempts did not help" in alert(paths)["alert"]
    tried = len(worked(machine))

    assert not run(paths).success
    assert len(worked(machine)) == tried, "the third touches nothing"

    machine.set({"reload_works": 1})
    assert run(paths, confirm_fault={"ignore_limit": True}).success
    assert record.load(paths).given_up is None


def test_the_pci_rung_is_for_those_who_ask(machine: FakeGpuHost, paths: StatePaths) -> None:
    machine.set({"gpu0.ret": 15, "reset_works": 0, "reload_works": 0})
    device = machine.root / "sys/bus/pci/devices/0000:3b:00.0"
    (device / "reset").write_text("")
    other = machine.root / "sys/bus/pci/devices/0000:3c:00.0" / "reset"
    other.write_text("")

    result = run(paths)
    assert did(result)["reset_pci"] == "skipped"
    assert (device / "reset").read_text() == ""

    run(paths, reset_pci={"allow": True})
    assert (device / "reset").read_text() == "1\n"
    assert other.read_text() == "", "only the broken GPU"


def test_a_full_disk_ends_in_a_failed_run_and_an_attempt(
    machine: FakeGpuHost, paths: StatePaths
) -> None:
    machine.set({"gpu0.ret": 15})
    paths.root.mkdir(parents=True)
    paths.registry.write_text("not a folder: the registry can't be opened")
    result = run(paths)
    assert not result.success
    assert rungs(result, "failed") == ["drain_replicas"]
    assert worked(machine) == []
    assert record.load(paths).attempts[0].ended is not None
