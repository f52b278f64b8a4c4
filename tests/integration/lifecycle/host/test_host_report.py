"""Verification as its users meet it: the asset in Dagster, and the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lifecycle.definitions import build_defs
from lifecycle.host.expectations import HOST_FILE
from lifecycle.host.verify import GROUPS
from lifecycle.models.resources import StateFolder
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.hosts import FixtureHost, files


@pytest.fixture
def machine(tmp_path: Path) -> FixtureHost:
    """Torch is the real one here, whatever build it is: nothing is asked of its flags."""
    host = FixtureHost(tmp_path / "host")
    declared = files.HEALTHY[HOST_FILE].replace('USE_CUDA = "1"\nUSE_CUDNN = "ON"\n', "")
    host.file(HOST_FILE, declared)
    (host.gpu.home / "port").write_text("1")
    return host


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    paths = StatePaths(tmp_path / "state").create()
    Registry.open(paths.registry).close()
    return paths


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def _command(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ironworks", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
    )


def test_the_asset_has_a_check_for_each_group_with_evidence_and_fix(
    machine: FixtureHost,
    paths: StatePaths,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.file("/proc/modules", "nvidia 1 0 - Live 0x0\nnouveau 1 0 - Live 0x0\n")
    for name, value in machine.gpu.env.items():
        monkeypatch.setenv(name, value)
    job = build_defs(state=StateFolder(root=str(paths.root))).resolve_job_def("verify_host")
    result = job.execute_in_process(instance=instance)
    assert result.success

    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert set(checks) == {group.name for group in GROUPS}
    assert checks["kernel"].passed
    assert not checks["driver"].passed
    assert checks["driver"].severity is dg.AssetCheckSeverity.ERROR
    assert "blacklist nouveau" in (checks["driver"].description or "")
    (report,) = result.asset_materializations_for_node("host_report")
    assert report.metadata["status"].value == "fail"
    assert report.metadata["failures"].value == 1

    with Registry.open(paths.registry) as registry:
        (event,) = [event for event in registry.audit.events() if event.kind == "host.verified"]
    assert event.body["problems"][0] == "driver.nouveau"


def test_the_doctor_ends_with_2_for_a_failure_and_prints_evidence_and_fix(
    machine: FixtureHost, paths: StatePaths
) -> None:
    env = {**machine.gpu.env, "IRONWORKS_STATE": str(paths.root)}
    healthy = _command("doctor", "driver", env=env)
    assert (healthy.returncode, healthy.stderr) == (0, "")
    machine.file("/proc/modules", "nouveau 1 0 - Live 0x0\n")
    sick = _command("doctor", "driver", env=env)
    assert sick.returncode == 2
    assert "fail driver.nouveau: the module nouveau is loaded" in sick.stdout
    assert "  fix: printf 'blacklist nouveau" in sick.stdout


def test_warnings_alone_end_with_1(machine: FixtureHost, paths: StatePaths) -> None:
    machine.file("/proc/sys/net/core/somaxconn", "128\n")
    env = {**machine.gpu.env, "IRONWORKS_STATE": str(paths.root)}
    warned = _command("doctor", "network", "--json", env=env)
    assert warned.returncode == 1
    assert json.loads(warned.stdout)["status"] == "warn"


def test_this_very_machine_can_be_verified(paths: StatePaths) -> None:
    """Whatever it is: the report is whole, and its exit status follows from it."""
    done = _command("host", "verify", "--json", "--state", str(paths.root))
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert done.returncode == {"pass": 0, "warn": 1, "fail": 2}[report["status"]]
    assert [group["name"] for group in report["groups"]] == [group.name for group in GROUPS]
    assert not [
        check
        for group in report["groups"]
        for check in group["checks"]
        if "the check met what it can't read" in check["evidence"]
    ]
    if not report["has_gpu"]:
        gpu_groups = [group for group in report["groups"] if group["note"] == "no GPU"]
        assert len(gpu_groups) == sum(group.needs_gpu for group in GROUPS)
        assert (paths.root / "host" / "report.json").is_file()
