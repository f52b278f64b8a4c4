"""What one look at NVML says, through the real nvidia-ml-py and a fake library below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.host.host import Host
from lifecycle.host.nvml import probe
from lifecycle.host.nvml_errors import Standing
from tests.support.fake_nvml import FakeGpuHost


@pytest.fixture
def machine(tmp_path: Path) -> FakeGpuHost:
    return FakeGpuHost(tmp_path / "host", gpus=2)


def test_every_value_of_every_gpu(machine: FakeGpuHost) -> None:
    machine.set(
        {
            "gpu1.util": 97,
            "gpu1.memory_used": 12345678,
            "gpu1.power_mw": 250500,
            "gpu1.temperature": 71,
            "gpu1.clock_reasons": "0x48",
            "gpu1.ecc_uncorrected": 2,
            "gpu1.remap_pending": 1,
            "gpu1.field230": 1,
            "gpu1.pid": 4321,
            "gpu1.pcie_width": 8,
        }
    )
    seen = probe(machine.host())
    assert (seen.driver_version, seen.cuda_version) == ("580.65.06", "13.0")
    assert seen.fault is None
    first, second = seen.gpus
    assert (first.pci_address, second.pci_address) == ("0000:3b:00.0", "0000:3c:00.0")
    assert second.utilization_percent == 97
    assert second.memory_used_bytes == 12345678
    assert second.power_watts == 250.5
    assert second.temperature_celsius == 71
    assert second.clock_reasons == 0x48
    assert second.ecc_uncorrected == 2
    assert second.remap_pending is True
    assert second.recovery_action == 1
    assert second.processes is not None and second.processes[0].pid == 4321
    assert (second.pcie_width, second.pcie_width_max) == (8, 16)
    assert not seen.needs_reboot


@pytest.mark.parametrize("action", [2, 7])
def test_the_driver_can_ask_for_a_reboot(machine: FakeGpuHost, action: int) -> None:
    machine.set({"gpu0.field230": action})
    assert probe(machine.host()).needs_reboot


@pytest.mark.parametrize(
    ("code", "name", "standing"),
    [
        (9, "DriverNotLoaded", Standing.NOT_LOADED),
        (18, "LibRmVersionMismatch", Standing.MISMATCH),
        (999, "Unknown", Standing.FAULT),
    ],
)
def test_a_library_that_does_not_start_is_a_fault(
    machine: FakeGpuHost, code: int, name: str, standing: Standing
) -> None:
    machine.set(init_ret=code)
    seen = probe(machine.host())
    assert seen.gpus == ()
    assert seen.fault is not None
    assert (seen.fault.name, seen.fault.standing) == (name, standing)
    assert seen.fault.fix


@pytest.mark.parametrize(("code", "name"), [(15, "GpuIsLost"), (16, "ResetRequired")])
def test_one_lost_gpu_does_not_hide_the_other(machine: FakeGpuHost, code: int, name: str) -> None:
    machine.set({"gpu1.ret": code})
    seen = probe(machine.host())
    assert seen.gpus[0].fault is None and seen.gpus[0].memory_used_bytes is not None
    assert seen.gpus[1].fault is not None
    assert seen.fault is not None and seen.fault.name == name
    machine.set({"gpu1.ret": None})
    assert probe(machine.host()).fault is None, "the next look starts afresh"


@pytest.mark.parametrize("code", [3, 4, 13])
def test_what_a_gpu_does_not_tell_is_unknown_and_no_fault(machine: FakeGpuHost, code: int) -> None:
    machine.set({"gpu0.ret": code, "gpu1.has_ecc": 0})
    seen = probe(machine.host())
    assert seen.fault is None
    assert seen.gpus[0].memory_used_bytes is None
    assert seen.gpus[1].ecc_uncorrected is None
    assert seen.gpus[1].codes == {"ecc_corrected": 3, "ecc_uncorrected": 3}


def test_a_library_that_hangs_is_left_at_the_deadline(machine: FakeGpuHost) -> None:
    machine.set(hang_ms=60_000)
    seen = probe(machine.host(), deadline_seconds=0.5)
    assert seen.error is not None and seen.error.name == "Hang"
    assert seen.fault is seen.error


def test_a_machine_without_a_driver_has_no_fault() -> None:
    host = Host()
    if host.exists("/proc/driver/nvidia/version"):
        pytest.skip("this machine has an NVIDIA driver")
    seen = probe(host)
    assert not seen.has_driver
    assert seen.fault is None
