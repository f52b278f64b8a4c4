"""A folder stands for a machine: nothing outside it is seen, read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.host.host import Host, HostAccessError, this_host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "name").write_text("ironworks\n")
    (tmp_path / "usr/local/cuda-12.4").mkdir(parents=True)
    (tmp_path / "usr/local/cuda-12.4/version.json").write_text("{}")
    (tmp_path / "usr/local/cuda").symlink_to("/usr/local/cuda-12.4")
    return Host(tmp_path)


def test_a_missing_file_is_none_and_a_forbidden_one_says_so(host: Host) -> None:
    assert host.read("/etc/name") == "ironworks\n"
    assert host.read("/etc/passwd") is None
    assert host.read("/etc/name/below") is None
    assert host.read("/etc") is None


def test_links_lead_inside_the_tree(host: Host) -> None:
    (host.root / "etc/escape").symlink_to("/etc/passwd")
    (host.root / "etc/up").symlink_to("../../../../../../etc/passwd")
    assert host.read("/etc/escape") is None
    assert host.read("/etc/up") is None
    assert host.readlink("/usr/local/cuda") == "/usr/local/cuda-12.4"
    assert host.resolve("/usr/local/cuda/version.json") == "/usr/local/cuda-12.4/version.json"
    assert host.exists("/usr/local/cuda/version.json")
    assert host.resolve("/usr/local/none") is None


def test_links_in_a_circle_end(host: Host) -> None:
    (host.root / "etc/a").symlink_to("b")
    (host.root / "etc/b").symlink_to("a")
    with pytest.raises(HostAccessError, match="circle"):
        host.read("/etc/a")


def test_glob_gives_paths_of_the_machine(host: Host) -> None:
    assert host.glob("/usr/local/cuda-*") == ["/usr/local/cuda-12.4"]


def test_only_what_exists_is_written_to(host: Host) -> None:
    host.write("/etc/name", "other")
    assert host.read("/etc/name") == "other"
    with pytest.raises(HostAccessError, match="no such file"):
        host.write("/etc/new", "x")
    assert not host.exists("/etc/new")


def test_the_real_machine_reads_its_own_files() -> None:
    host = Host()
    assert host.read("/proc/self/comm")
    assert host.exists("/proc/self")
    assert "/proc/sys/vm/swappiness" in host.glob("/proc/sys/vm/swap*")


def test_the_environment_names_another_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRONWORKS_HOST_ROOT", str(tmp_path))
    assert this_host().root == tmp_path
