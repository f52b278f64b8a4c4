"""A verification tells what it knows, says "unknown" for the rest, and never breaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lifecycle.host.checks.torch import runs_on
from lifecycle.host.commands import ProcessRunner
from lifecycle.host.elf import read_dynamic
from lifecycle.host.expectations import HOST_FILE, Expectations
from lifecycle.host.host import Host
from lifecycle.host.inspection import Inspection
from lifecycle.host.report import HostReport
from lifecycle.host.verify import NO_GPU, report_file, verify, verify_and_keep
from registry.errors import InputError
from registry.paths import StatePaths
from serving.torch_checks import build_settings
from tests.support.fake_nvml import FakeGpuHost
from tests.support.hosts import FixtureHost, files
from tests.support.hosts.libraries import build_library


@pytest.fixture
def machine(tmp_path: Path) -> FixtureHost:
    return FixtureHost(tmp_path / "host")


def _verify(machine: FixtureHost) -> HostReport:
    with machine.inspect() as inspection:
        return verify(inspection)


def _without_gpu(machine: FixtureHost) -> None:
    machine.gpu.set(count=0)
    machine.file("/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x8086\n")
    machine.remove("/dev/nvidiactl")
    machine.file(HOST_FILE, files.HEALTHY[HOST_FILE].replace("count = 1", "count = 0"))
    machine.torch |= {"cuda": None, "devices": [], "device": "cpu", "graph": None}
    machine.torch |= {"cudnn_off": None, "version": "2.13.0+cpu"}


def test_without_a_gpu_its_groups_are_one_line_each(machine: FixtureHost) -> None:
    _without_gpu(machine)
    report = _verify(machine)
    assert not report.has_gpu
    notes = {group.name: group.note for group in report.groups if not group.findings}
    assert {name for name, note in notes.items() if note == NO_GPU} == {
        *("driver", "gpu", "cuda", "cudnn")
    }
    assert report.problems == []
    assert report.exit_code == 0


def test_a_gpu_that_was_declared_and_is_not_there_is_a_failure(machine: FixtureHost) -> None:
    _without_gpu(machine)
    machine.file(HOST_FILE, files.HEALTHY[HOST_FILE])
    names = {finding.name for finding in _verify(machine).problems}
    assert "driver.device_count" in names


def test_nothing_at_all_is_known_of_an_empty_folder(tmp_path: Path) -> None:
    """No check is sure of anything, and none breaks."""
    (tmp_path / "empty").mkdir()
    no_gpu = FakeGpuHost(tmp_path / "no-gpu", gpus=0)
    runner = ProcessRunner({**no_gpu.env, "PATH": str(tmp_path / "no-programs")})
    report = verify(Inspection(Host(tmp_path / "empty", runner)))
    assert not report.has_gpu
    assert {finding.group for finding in report.problems} <= {"shared_memory", "torch"}
    assert report.counts["unknown"] > 5


def test_files_in_a_strange_form_are_unknown_and_hide_no_other_check(
    machine: FixtureHost,
) -> None:
    for path in ("/proc/net/netstat", "/proc/sys/net/core/somaxconn"):
        machine.file(path, "TcpExt: ListenOverflows\nTcpExt: many\n")
    report = _verify(machine)
    by_name = {finding.name: finding.outcome.status for finding in report.findings}
    assert by_name["network.accept_backlog"] == "unknown"
    assert by_name["network.listen_overflows"] == "unknown"
    assert by_name["network.retries"] == "pass"
    assert report.exit_code == 0


def test_a_hanging_nvml_is_a_failure_and_does_not_hold_the_report_up(
    machine: FixtureHost,
) -> None:
    machine.gpu.set(hang_ms=60_000)
    problems = {finding.name: finding.outcome for finding in _verify(machine).problems}
    assert "did not answer in time" in problems["gpu.answers"].evidence
    assert problems["gpu.answers"].status == "fail"


def test_each_health_value_of_a_card_is_judged(machine: FixtureHost) -> None:
    machine.gpu.set(
        {"gpu0.persistence": 0, "gpu0.field230": 2, "gpu0.temperature": 91, "gpu0.pcie_width": 4}
    )
    named = {finding.name: finding.outcome.status for finding in _verify(machine).problems}
    assert named["gpu.persistence"] == "warn"
    assert named["gpu.recovery_action"] == "fail"
    assert named["gpu.temperature"] == "warn"
    assert named["gpu.pcie_width"] == "warn"


def test_an_xid_that_was_recovered_from_is_a_warning(machine: FixtureHost) -> None:
    machine.gpu.kernel_says("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC")
    (problem,) = _verify(machine).problems
    assert problem.name == "gpu.xid_events"
    assert problem.outcome.status == "warn"
    assert "the card answers now" in problem.outcome.evidence


def test_a_changed_file_and_a_wrong_version_are_found(machine: FixtureHost) -> None:
    site = "/opt/ironworks/.venv/lib/python3.11/site-packages"
    machine.file(f"{site}/demo/__init__.py", "answer = 43\n")
    machine.file(f"{site}/demo-1.0.dist-info/METADATA", "Name: demo\nVersion: 1.1\n\n")
    problems = {finding.name: finding.outcome.evidence for finding in _verify(machine).problems}
    assert "demo/__init__.py was changed" in problems["environment.installed_files"]
    assert "demo 1.1 (locked: 1.0)" in problems["environment.locked_versions"]


def test_a_loose_driver_package_and_a_kernel_without_module_are_warned_of(
    machine: FixtureHost,
) -> None:
    loose = files.HEALTHY["/var/lib/dpkg/status"].replace("hold ok", "install ok")
    machine.file("/var/lib/dpkg/status", loose)
    machine.file("/lib/modules/6.1.0-31-amd64/kernel/fs/ext4/ext4.ko", "")
    problems = {finding.name: finding.outcome for finding in _verify(machine).problems}
    assert problems["driver.packages_held"].fix == "sudo apt-mark hold nvidia-driver-580"
    assert "6.1.0-31-amd64" in problems["driver.dkms"].evidence


def test_the_report_is_kept_for_the_next_comparison(machine: FixtureHost, tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "state")
    counters = "TcpExt: ListenOverflows\nTcpExt: {}\n"
    with machine.inspect() as inspection:
        machine.file("/proc/net/netstat", counters.format(5))
        first = verify_and_keep(inspection.host, paths)
        second = verify_and_keep(inspection.host, paths)
    assert [finding.name for finding in first.problems] == ["network.listen_overflows"]
    assert second.problems == []
    stored = json.loads(report_file(paths).read_text())
    assert stored["counters"] == {"ListenOverflows": 5}
    assert stored["counts"]["fail"] == 0


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze"
)
def test_a_key_that_systemd_does_not_know_is_found(machine: FixtureHost) -> None:
    (machine.gpu.home / "bin" / "systemd-analyze").unlink()  # the real one judges
    unit = "/etc/systemd/system/ironworks-serving@.service"
    good = files.HEALTHY[unit].replace("/opt/ironworks/.venv/bin/ironworks", "/bin/true")
    machine.file(unit, good)
    assert _verify(machine).problems == []
    machine.file(unit, good + "MemroyMax=1G\n")
    (problem,) = _verify(machine).problems
    assert problem.name == "systemd.units_verify"
    assert "MemroyMax" in problem.outcome.evidence


def test_a_limit_of_cgroup_v1_is_warned_of(machine: FixtureHost) -> None:
    """L17: MemoryLimit= is ignored."""
    unit = "/etc/systemd/system/ironworks-serving@.service"
    machine.file(unit, files.HEALTHY[unit].replace("MemoryMax", "MemoryLimit"))
    (problem,) = _verify(machine).problems
    assert problem.name == "systemd.replaced_settings"
    assert "MemoryMax=" in problem.outcome.fix


def test_a_variable_of_an_instance_counts(machine: FixtureHost) -> None:
    unit = "/etc/systemd/system/ironworks-serving@"
    template = files.HEALTHY[f"{unit}.service"]
    without = template.replace("EnvironmentFile=/etc/ironworks/serving.env\n", "")
    machine.file(f"{unit}.service", without)
    machine.file(f"{unit}8000.service.d/env.conf", '[Service]\nEnvironment="IRONWORKS_STATE=/x"\n')
    assert _verify(machine).problems == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gpu\n", "no TOML"),
        ("[gpus]\ncount = 1\n", "no table"),
        ("[gpu]\nnumber = 1\n", "no key number"),
        ('[gpu]\ncount = "one"\n', "wrong type"),
        ("[serving]\nenvironment = [1]\n", "wrong type"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / HOST_FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        Expectations.of(Host(tmp_path))
    assert refused.value.where == HOST_FILE


@pytest.mark.parametrize(
    ("card", "built", "runs"),
    [
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_86"], False),
        ((9, 0), ["compute_80"], True),
        ((12, 0), ["sm_120"], True),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90a"], False),
        ((8, 6), [], False),
    ],
)
def test_which_code_runs_on_which_card(card: tuple[int, int], built: list[str], runs: bool) -> None:
    assert runs_on(card, built) is runs


def test_a_library_tells_its_names_without_binutils(tmp_path: Path) -> None:
    build_library(tmp_path / "a.so", "liba.so.1", needed="libb.so.2", rpath="$ORIGIN/lib")
    dynamic = read_dynamic(tmp_path / "a.so")
    assert dynamic is not None
    assert (dynamic.soname, dynamic.needed, dynamic.rpath) == (
        *("liba.so.1", ("libb.so.2",), "$ORIGIN/lib"),
    )
    (tmp_path / "cut.so").write_bytes((tmp_path / "a.so").read_bytes()[:80])
    assert read_dynamic(tmp_path / "cut.so") is None


def test_torch_tells_its_build_flags() -> None:
    """L24: values are mixed 0/1/ON/OFF, and compiler flags hold commas and spaces."""
    import torch

    settings = build_settings(torch.__config__.show())
    assert settings["TORCH_VERSION"] in torch.__version__
    assert settings["USE_CUDA"] in ("0", "1", "ON", "OFF")
    assert "-O2" in settings["CXX_FLAGS"]
