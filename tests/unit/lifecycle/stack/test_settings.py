"""Where the stack runs is checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.stack.dagster_home import code_server_socket, prepare, read_environment
from lifecycle.stack.settings import StackSettings
from registry.errors import InputError
from registry.paths import StatePaths


@pytest.mark.parametrize("ports", [(0, 3000), (8000, 70000), (-1, 3000), (8000, 8000)])
def test_impossible_ports_are_refused(tmp_path: Path, ports: tuple[int, int]) -> None:
    with pytest.raises(InputError) as refused:
        StackSettings(StatePaths(tmp_path), *ports)
    assert "PORT" in refused.value.where


def test_the_dagster_home_points_at_the_code_server_and_no_telemetry(tmp_path: Path) -> None:
    settings = StackSettings(StatePaths(tmp_path).create(), 8001, 3001)
    workspace = prepare(settings)
    assert str(code_server_socket(settings)) in workspace.read_text()
    assert "telemetry: {enabled: false}" in (tmp_path / "dagster" / "dagster.yaml").read_text()
    assert (tmp_path / "dagster" / "storage").exists() or list((tmp_path / "dagster").rglob("*.db"))


def test_the_environment_of_the_last_start_is_remembered(tmp_path: Path) -> None:
    settings = StackSettings(StatePaths(tmp_path).create(), 8001, 3001)
    assert read_environment(settings) == {}
    prepare(settings)
    assert read_environment(settings) == settings.environment
    assert read_environment(settings)["IRONWORKS_PORT"] == "8001"


@pytest.mark.parametrize(
    ("dagster_port", "chosen", "port"), [(3000, 0, 4000), (65000, 0, 64000), (3000, 9100, 9100)]
)
def test_the_exporter_has_a_port_of_its_own(
    tmp_path: Path, dagster_port: int, chosen: int, port: int
) -> None:
    settings = StackSettings(StatePaths(tmp_path), 8000, dagster_port, exporter_port=chosen)
    assert settings.metrics_port == port
    assert settings.environment["IRONWORKS_EXPORTER_PORT"] == str(port)


def test_several_replicas_take_the_ports_after_the_proxys(tmp_path: Path) -> None:
    settings = StackSettings(StatePaths(tmp_path), 8000, 3000, replicas=2)
    assert settings.environment["IRONWORKS_REPLICAS"] == "2"
    assert [r.port for r in settings.layout.initial("demo", "production")] == [8001, 8002]
    with pytest.raises(InputError, match="8002"):
        StackSettings(StatePaths(tmp_path), 8000, 8002, replicas=2)
    with pytest.raises(InputError) as refused:
        StackSettings(StatePaths(tmp_path), 8000, 3000, replicas=0)
    assert refused.value.where == "REPLICAS"


def test_engines_share_the_cores_unless_the_user_has_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IRONWORKS_THREADS", raising=False)
    paths = StatePaths(tmp_path)
    assert "IRONWORKS_THREADS" not in StackSettings(paths).environment
    assert int(StackSettings(paths, replicas=64).environment["IRONWORKS_THREADS"]) >= 1
    monkeypatch.setenv("IRONWORKS_THREADS", "7")
    assert "IRONWORKS_THREADS" not in StackSettings(paths, replicas=2).environment
