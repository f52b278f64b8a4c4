"""The host exporter as its own process: what Prometheus sees, also when NVML says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lifecycle.host.recovery.record import GivenUp, RecoveryRecord, save
from registry.paths import StatePaths
from tests.support.fake_nvml import FakeGpuHost, wait_for
from tests.support.ports import free_port

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Exporter:
    def __init__(self, url: str) -> None:
        self._url = url

    def series(self) -> Series:
        text = httpx.get(f"{self._url}/metrics", trust_env=False, timeout=10).text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one series with these labels; None if there is none."""
        wanted = set(labels.items())
        found = [v for (n, ls), v in self.series().items() if n == name and wanted <= set(ls)]
        assert len(found) <= 1, found
        return found[0] if found else None


@contextmanager
def running(env: dict[str, str], state: Path) -> Iterator[Exporter]:
    port = free_port()
    command = [
        *(sys.executable, "-m", "ironworks", "exporter", "--port", str(port)),
        *("--interval", "0.2", "--state", str(state)),
    ]
    process = subprocess.Popen(command, env=os.environ | env, stdin=subprocess.DEVNULL)
    exporter = Exporter(f"http://127.0.0.1:{port}")
    try:

        def answers() -> bool:
            assert process.poll() is None, "the exporter has ended"
            try:
                return exporter.value("host_probe_seconds") is not None
            except httpx.TransportError:
                return False

        wait_for(answers)
        yield exporter
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> FakeGpuHost:
    return FakeGpuHost(tmp_path / "host", gpus=2)


def test_a_machine_without_gpus_says_so_and_looks_healthy(tmp_path: Path) -> None:
    machine = FakeGpuHost(tmp_path / "none", gpus=0)
    (machine.home / "lib" / "libnvidia-ml.so.1").unlink()
    with running(machine.env, tmp_path / "state") as exporter:
        assert exporter.value("host_gpu_state", state="no_gpu") == 1
        assert exporter.value("host_gpu_state", state="fault") == 0
        assert not [key for key in exporter.series() if key[0] == "gpu_memory_used_bytes"]
        wait_for(lambda: (exporter.value("host_probe_age_seconds") or 9) < 2)


def test_values_faults_and_silence_are_told_apart(machine: FakeGpuHost, tmp_path: Path) -> None:
    machine.set({"gpu0.util": 97, "gpu0.memory_used": 5_000, "gpu0.ecc_uncorrected": 3})
    machine.kernel_says("NVRM: Xid (PCI:0000:3b:00): 63, a row is remapped")
    with running(machine.env, tmp_path / "state") as exporter:
        assert exporter.value("host_gpu_state", state="ok") == 1
        assert exporter.value("gpu_memory_used_bytes", gpu="0") == 5_000
        assert exporter.value("gpu_utilization_ratio", gpu="0") == 0.97
        assert exporter.value("gpu_ecc_uncorrected_total", gpu="0") == 3
        assert exporter.value("gpu_xid_total", pci="0000:3b:00.0", xid="63") == 1

        machine.set({"gpu1.ret": 15})
        wait_for(lambda: exporter.value("gpu_fault", gpu="1") == 15)
        assert exporter.value("host_gpu_state", state="fault") == 1
        assert exporter.value("gpu_memory_used_bytes", gpu="1") is None
        assert exporter.value("gpu_memory_used_bytes", gpu="0") == 5_000

        machine.set({"gpu1.ret": None})
        wait_for(lambda: exporter.value("host_gpu_state", state="ok") == 1)
        machine.file("/dev/kmsg", "")
        machine.kernel_says("nothing of ours")
        assert exporter.value("gpu_xid_total", pci="0000:3b:00.0", xid="63") == 1


def test_a_hung_driver_shows_as_age_while_the_exporter_answers(
    machine: FakeGpuHost, tmp_path: Path
) -> None:
    with running(machine.env, tmp_path / "state") as exporter:
        machine.set(hang_ms=60_000)
        wait_for(lambda: exporter.value("host_probe_failures_total", error="Hang") is not None)
        age = exporter.value("host_probe_age_seconds")
        assert age is not None
        wait_for(lambda: (exporter.value("host_probe_age_seconds") or 0) > age)
        assert exporter.value("gpu_memory_used_bytes", gpu="0") is None
        machine.set(hang_ms=None)
        wait_for(lambda: exporter.value("gpu_memory_used_bytes", gpu="0") is not None)


def test_recoveries_of_the_host_are_exported(machine: FakeGpuHost, tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "state")
    save(paths, RecoveryRecord(total_attempts=1).begin("run", 1.0))
    with running(machine.env, paths.root) as exporter:
        assert exporter.value("host_recoveries_total") == 2
        assert exporter.value("driver_recovered_seconds") is None
        save(
            paths,
            RecoveryRecord(
                driver_recovered_seconds=8.5,
                serving_again_seconds=20.25,
                given_up=GivenUp(1.0, "boot", "Xid 79", True),
            ),
        )
        assert exporter.value("driver_recovered_seconds") == 8.5
        assert exporter.value("serving_again_seconds") == 20.25
        assert exporter.value("host_given_up") == 1
