"""What a broken host needs: nothing, the ladder, or a reboot."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.host.recovery.diagnosis import Course, Diagnosis, diagnose
from lifecycle.host.recovery.holders import holders
from lifecycle.host.watch import GpuState, look
from tests.support.fake_nvml import FakeGpuHost


@pytest.fixture
def machine(tmp_path: Path) -> FakeGpuHost:
    return FakeGpuHost(tmp_path / "host", gpus=2)


def seen(machine: FakeGpuHost, *, recovered_at: float = 0.0) -> Diagnosis:
    host = machine.host()
    return diagnose(look(host), holders(host), recovered_at=recovered_at)


def test_a_healthy_host_needs_nothing(machine: FakeGpuHost) -> None:
    assert seen(machine).course is Course.NONE


def test_a_machine_without_gpus_needs_nothing(tmp_path: Path) -> None:
    machine = FakeGpuHost(tmp_path / "none", gpus=0)
    machine.set(init_ret=9)
    assert look(machine.host()).state is GpuState.NONE
    assert seen(machine).course is Course.NONE


def test_a_lost_gpu_is_named_and_reset(machine: FakeGpuHost) -> None:
    machine.set({"gpu1.ret": 15})
    found = seen(machine)
    assert (found.course, found.gpus) == (Course.RECOVER, (1,))
    assert found.addresses == ("0000:3c:00.0",)
    assert "fallen off the bus" in found.reason


def test_a_driver_that_sees_less_than_the_bus_is_broken(machine: FakeGpuHost) -> None:
    machine.set(count=1)
    found = seen(machine)
    assert found.course is Course.RECOVER
    assert "1 of 2 GPUs" in found.reason
    assert (found.gpus, found.addresses) == ((), ("0000:3c:00.0",)), "NVML can't reset it"


@pytest.mark.parametrize("code", [9, 18])
def test_where_nvml_does_not_start_no_reset_is_tried(machine: FakeGpuHost, code: int) -> None:
    machine.set(init_ret=code)
    found = seen(machine)
    assert found.course is Course.RECOVER
    assert found.gpus == ()
    assert len(found.addresses) == 2


def test_an_xid_may_ask_for_a_reset_of_a_gpu_that_still_answers(machine: FakeGpuHost) -> None:
    machine.kernel_says("NVRM: Xid (PCI:0000:3c:00): 119, pid=1, Timeout after 45s of waiting")
    found = seen(machine)
    assert (found.course, found.gpus) == (Course.RECOVER, (1,))
    assert "Xid 119" in found.reason


def test_an_old_xid_and_one_that_was_dealt_with_ask_for_nothing(machine: FakeGpuHost) -> None:
    machine.kernel_says("NVRM: Xid (PCI:0000:3c:00): 119, long ago", age_seconds=900)
    assert seen(machine).course is Course.NONE
    machine.kernel_says("NVRM: Xid (PCI:0000:3c:00): 119, just now", age_seconds=20)
    assert seen(machine, recovered_at=990.0).course is Course.NONE
    assert seen(machine, recovered_at=970.0).course is Course.RECOVER


def test_the_drivers_own_advice_is_followed(machine: FakeGpuHost) -> None:
    machine.set({"gpu0.field230": 4})
    found = seen(machine)
    assert (found.course, found.gpus) == (Course.RECOVER, (0,))


@pytest.mark.parametrize(
    "break_it",
    [
        lambda m: m.set({"gpu0.field230": 2}),
        lambda m: m.set({"gpu0.field230": 7}),
        lambda m: m.kernel_says("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
        lambda m: m.kernel_says(
            "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x2 (Node)"
        ),
        lambda m: (m.set({"gpu0.ret": 15}), m.process(4711, "train", state="D")),
    ],
    ids=["action 2", "action 7", "Xid 79", "Xid 154", "D state"],
)
def test_what_only_a_reboot_cures(machine: FakeGpuHost, break_it: object) -> None:
    assert callable(break_it)
    break_it(machine)
    found = seen(machine)
    assert found.course is Course.REBOOT
    assert found.reason


def test_a_process_in_the_kernel_is_no_fault_of_a_gpu_that_answers(machine: FakeGpuHost) -> None:
    machine.process(4711, "train", state="D")
    assert seen(machine).course is Course.NONE
