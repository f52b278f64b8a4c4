"""Replicas as systemd units: a real replica under a stand-in for systemctl, and the unit file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.supervisors.base import ReplicaSpec
from lifecycle.fleet.supervisors.systemd import SystemdSupervisor, unit_template
from registry.errors import ConflictError, InputError, NotFoundError
from registry.paths import StatePaths
from registry.store import Registry
from serving.client import ReplicaClient, admin_socket_path
from tests.support import fake_systemctl, nspawn
from tests.support.fleet import SMALL
from tests.support.ports import free_port
from tests.support.registered import add_version, promote

PROGRAM = Path(sys.executable).parent / "ironworks"


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path / "state").create()


@pytest.fixture
def units(tmp_path: Path, paths: StatePaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the stand-in, which comes first on PATH."""
    folder, programs = tmp_path / "units", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "template").write_text(unit_template(paths, PROGRAM, "root"))
    program = programs / "systemctl"
    program.write_text(f"#!{sys.executable}\n{Path(fake_systemctl.__file__).read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("IRONWORKS_FAKE_UNITS", str(folder))
    yield folder
    for pid in folder.glob("*.pid"):
        subprocess.run([program, "kill", pid.stem], check=True)


def spec(port: int, **changes: object) -> ReplicaSpec:
    made = ReplicaSpec(f"replica-{port}", port, "tiny", env=dict(SMALL))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_replica_as_a_unit_from_start_to_stop(
    paths: StatePaths, units: Path, tiny_checkpoints: tuple[Path, Path]
) -> None:
    with Registry.open(paths.registry) as registry:
        add_version(registry, tiny_checkpoints[0], "tiny@v1")
        promote(registry, "tiny@v1")
    supervisor, port = SystemdSupervisor(paths), free_port()
    service = f"replica-{port}"
    started = supervisor.start(spec(port))
    assert started.running and started.pid and started.port == port
    assert supervisor.services() == [service]
    admin = admin_socket_path(paths.root, service)
    with ReplicaClient(f"http://127.0.0.1:{port}", admin) as client:
        deadline = time.monotonic() + 120
        while not client.readyz():
            assert time.monotonic() < deadline, (
                units / f"ironworks-serving@{port}.service.log"
            ).read_text()
            time.sleep(0.1)
        assert supervisor.start(spec(port)).pid == started.pid, "started as it runs: nothing"
        with pytest.raises(ConflictError, match="runs otherwise"):
            supervisor.start(spec(port, alias="canary"))
        supervisor.drain(service)
        assert client.livez() and not client.readyz()
    assert not supervisor.stop(service).running
    assert not supervisor.stop(service).running
    assert supervisor.services() == []
    with pytest.raises(NotFoundError):
        supervisor.drain(service)
    with Registry.open(paths.registry) as registry:
        assert [e.kind for e in registry.audit.events()][-1] == "load.unloaded"


def test_a_name_that_does_not_tell_the_port_is_refused(paths: StatePaths, units: Path) -> None:
    supervisor = SystemdSupervisor(paths)
    for bad in (spec(8001, service="mine"), spec(8001, service="replica-8002")):
        with pytest.raises(InputError):
            supervisor.start(bad)
    assert not (units / "calls").exists()


def test_a_systemd_that_hangs_is_given_up(paths: StatePaths, units: Path) -> None:
    (units / "hang").touch()
    with pytest.raises(ProcessError, match="does not answer"):
        SystemdSupervisor(paths, timeout=0.5).status("replica-8001")


def test_another_host_is_asked_over_ssh(paths: StatePaths, units: Path) -> None:
    (units / "calls").touch()
    supervisor = SystemdSupervisor(paths, "gpu-2")
    supervisor.status("replica-8001")
    assert (units / "calls").read_text().startswith("-H gpu-2 show ")
    with pytest.raises(InputError, match="at the proxy"):
        supervisor.drain("replica-8001")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path, paths: StatePaths) -> None:
    unit = tmp_path / "ironworks-serving@.service"
    unit.write_text(unit_template(paths, PROGRAM, "root"))
    instance = tmp_path / "ironworks-serving@8001.service"
    instance.symlink_to(unit)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    # It returns 0 for settings that it does not know: what it says counts.
    ours = [line for line in checked.stderr.splitlines() if "ironworks" in line]
    assert ours == []
    assert checked.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(nspawn.why_not()), reason=nspawn.why_not())
def test_a_replicas_life_under_the_real_systemd(
    tmp_path: Path, tiny_checkpoints: tuple[Path, Path]
) -> None:
    folder = tmp_path / "box"
    paths = StatePaths(folder / "state")
    paths.root.mkdir(parents=True)
    paths.create()
    with Registry.open(paths.registry) as registry:
        add_version(registry, tiny_checkpoints[0], "tiny@v1")
        promote(registry, "tiny@v1")
    answer = folder / "answer.json"
    booted = nspawn.run_under_systemd(
        folder,
        f"{sys.executable} -m tests.support.systemd_story {paths.root} {answer}",
        {"ironworks-serving@.service": unit_template(paths, PROGRAM, "root")},
        seconds=240,
    )
    output = folder / "output"
    if not output.exists():
        pytest.skip(f"no container can be booted here: {booted.stderr.strip()[-300:]}")
    assert answer.exists(), output.read_text()[-3000:]
    assert json.loads(answer.read_text()) == {
        "before": False,
        "services": ["replica-8001"],
        "same": True,
        "restarted": True,
        "drained": True,
        "after": False,
        "left": [],
        "done": True,
    }, output.read_text()[-3000:]
    with Registry.open(paths.registry) as registry:
        kinds = [event.kind for event in registry.audit.events()]
    assert kinds.count("load.ready") == 2 and kinds[-1] == "load.unloaded"
