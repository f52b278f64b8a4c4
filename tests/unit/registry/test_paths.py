from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from registry.clock import iso, parse_time
from registry.errors import InputError
from registry.paths import SOCKET_PATH_BYTES, StatePaths


def test_the_state_folder_is_absolute_whatever_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IRONWORKS_STATE", raising=False)
    assert StatePaths.from_env().root == tmp_path / "var"
    monkeypatch.setenv("IRONWORKS_STATE", "other")
    assert StatePaths.from_env().root == tmp_path / "other"


def test_create_makes_the_layout_and_again_changes_nothing(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "state").create().create()
    assert sorted(path.name for path in paths.root.iterdir()) == [
        "dagster",
        "demo",
        "intake",
        "log",
        "registry",
        "run",
    ]
    assert paths.run.stat().st_mode & 0o077 == 0


def test_a_state_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="IRONWORKS_STATE"):
        StatePaths(tmp_path / "file" / "state").create()


@pytest.mark.parametrize("depth", [1, 12])
def test_sockets_can_be_bound_however_deep_the_state_folder(tmp_path: Path, depth: int) -> None:
    paths = StatePaths(tmp_path.joinpath(*["a-folder-name"] * depth)).create()
    path = paths.socket("replica-8000.admin")
    assert path == paths.socket("replica-8000.admin.sock")
    assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    path.unlink()
    if depth > 1:
        assert path.parent.stat().st_mode & 0o777 == 0o700
        path.parent.rmdir()


def test_a_folder_for_sockets_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path.joinpath(*["another-folder"] * 12))
    folder = paths.socket("x").parent
    folder.chmod(0o755)
    with pytest.raises(InputError, match="not private"):
        paths.socket("x")
    folder.rmdir()


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1970-01-01 00:00:02", 2_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1.5", 1_500_000),
        ("1796101051.8238103", 1_796_101_051_823_810),
        ("1767225600", 1_767_225_600_000_000),
    ],
)
def test_times_people_write(text: str, us: int) -> None:
    assert parse_time(text) == us
    assert parse_time(iso(us)) == us


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "-5", "1e9", "NaN"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ISO 8601"):
        parse_time(text)
