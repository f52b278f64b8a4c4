"""The GPU driver breaks: faults of a fake NVML library, with the delays of real hardware.

The library and the tools are the tests' own (`tests.support.fake_nvml`); everything above
them is the product under its real Dagster daemon.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.drills.stack import Stack, running_stack
from benchmarks.drills.world import wait_for
from lifecycle.host.recovery.record import load, save
from lifecycle.host.recovery.report import ALERT, GIVEN_UP, RECOVERED
from tests.support.fake_nvml import FakeGpuHost

JOB = "recover_host"

# Each call's delay: a reset takes 2 to 6 s; unloading the four modules about 1 s together, and
# loading them with device initialisation about 5 s.
_RESET_MS, _RMMOD_MS, _MODPROBE_MS = 4_000, 300, 1_200
_QUIET_SECONDS = 25.0
"""Two looks of the sensor, and some: time to begin again what must not be begun."""


def absent() -> str:
    """Why these drills can't run on this machine, "" if they can."""
    return "" if shutil.which("gcc") else "no gcc to build the fake NVML library with"


@dataclass(frozen=True)
class GpuStack:
    """The product on a machine with one fake GPU."""

    stack: Stack
    machine: FakeGpuHost


@contextmanager
def gpu_stack(folder: Path, source: Path) -> Iterator[GpuStack]:
    """Bring it up with one replica."""
    machine = FakeGpuHost(folder / "host")
    machine.set(reset_ms=_RESET_MS, rmmod_ms=_RMMOD_MS, modprobe_ms=_MODPROBE_MS)
    with running_stack(folder, source, replicas=1, env=machine.env) as stack:
        yield GpuStack(stack, machine)


def gpu_lost(on: GpuStack) -> dict[str, object]:
    """NVML says "GPU is lost", and a reset cures it."""
    return _recovered(on, lambda: on.machine.set({"gpu0.ret": 15, "reset_works": 1}))


def gpu_lost_needs_reload(on: GpuStack) -> dict[str, object]:
    """NVML says "GPU is lost", the reset fails, and reloading the modules cures it."""
    return _recovered(on, lambda: on.machine.set({"gpu0.ret": 15, "reset_works": 0}))


def nvml_hang(on: GpuStack) -> dict[str, object]:
    """Every call of NVML and of ``nvidia-smi`` hangs until the modules are reloaded."""
    return _recovered(on, lambda: on.machine.set(hang_ms=60_000, smi_hang_ms=60_000))


def driver_mismatch(on: GpuStack) -> dict[str, object]:
    """The user space was upgraded under the loaded module."""
    newer = "580.95.05"
    return _recovered(on, lambda: on.machine.set(init_ret=18, installed_driver=newer))


def foreign_holder(on: GpuStack) -> dict[str, object]:
    """Somebody else's process holds the lost GPU: a person must end it."""

    def fault() -> None:
        on.machine.process(4242, "train")
        on.machine.set({"gpu0.ret": 15})

    try:
        return _given_up(on, fault)
    finally:
        shutil.rmtree(on.machine.root / "proc" / "4242", ignore_errors=True)


def fallen_off_the_bus(on: GpuStack) -> dict[str, object]:
    """Xid 79: only a reboot helps."""

    def fault() -> None:
        on.machine.kernel_says(
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus."
        )
        on.machine.set({"gpu0.ret": 15})

    return _given_up(on, fault)


DRILLS: dict[str, Callable[[GpuStack], dict[str, object]]] = {
    "gpu_lost": gpu_lost,
    "gpu_lost_needs_reload": gpu_lost_needs_reload,
    "nvml_hang": nvml_hang,
    "driver_mismatch": driver_mismatch,
    "foreign_holder": foreign_holder,
    "fallen_off_the_bus": fallen_off_the_bus,
}


def _recovered(on: GpuStack, fault: Callable[[], None]) -> dict[str, object]:
    stack = on.stack
    began, seq = _begin(on), stack.world.last_seq()
    broken = time.monotonic()
    fault()
    wait_for("recovered host", lambda: stack.events(RECOVERED, seq), 240)
    again = stack.await_rotation([replica.service for replica in stack.desired()])
    event = stack.events(RECOVERED, seq)[0]
    return {
        "serving_again_seconds": round(again - broken, 2),
        # From when the sensor first saw the fault, as the product itself exports them.
        "exported_driver_recovered_seconds": event.body["driver_recovered_ms"] / 1000,
        "exported_serving_again_seconds": event.body["serving_again_ms"] / 1000,
        "recovery_runs": len(stack.runs(JOB, after=began)),
        "rungs": {
            rung["rung"]: rung["did"] for rung in event.body["rungs"] if rung["did"] != "skipped"
        },
    }


def _given_up(on: GpuStack, fault: Callable[[], None]) -> dict[str, object]:
    stack = on.stack
    began, seq = _begin(on), stack.world.last_seq()
    broken = time.monotonic()
    fault()
    try:
        wait_for("a host that is given up", lambda: stack.events(GIVEN_UP, seq), 240)
        told = time.monotonic()
        # Nothing loops: time for the sensor to ask again.
        time.sleep(_QUIET_SECONDS)
        (alert,) = stack.events(ALERT, seq)
        services = [replica.service for replica in stack.desired()]
        return {
            "escalated_seconds": round(told - broken, 2),
            "alert": alert.body["alert"],
            "needs_reboot": alert.body["needs_reboot"],
            "recovery_runs": len(stack.runs(JOB, after=began)),
            "in_rotation": sum(stack.in_rotation(service) for service in services),
            "tools_called": [call for call in on.machine.calls if " -r" in call or "rmmod" in call],
        }
    finally:
        _repair(on)


def _begin(on: GpuStack) -> float:
    """Forget earlier attempts, which would count against the limit; the time, in seconds."""
    (on.machine.home / "calls.log").write_text("")
    stack = on.stack
    stack.await_rotation([replica.service for replica in stack.desired()])
    save(stack.world.paths, replace(load(stack.world.paths), attempts=()))
    return time.time()


def _repair(on: GpuStack) -> None:
    """What a person does: remove the cause and run the job, as the alert says."""
    on.machine.set({"gpu0.ret": None, "init_ret": None, "hang_ms": None, "smi_hang_ms": None})
    on.machine.file("/dev/kmsg", "")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(on.machine.root / "proc" / "4242")
    record = load(on.stack.world.paths)
    save(on.stack.world.paths, replace(record, attempts=(), given_up=None))
    on.stack.launch(JOB)
    wait_for("end of the repair", lambda: all(run.end_time for run in on.stack.runs(JOB)))
    on.stack.await_rotation([replica.service for replica in on.stack.desired()])
