"""The locks are what `make up` installs: whatever is wrong with them is named before it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import check
import lockfile
import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Path:
    """A copy of what is checked, to break."""
    shutil.copyfile(repository / "pyproject.toml", tmp_path / "pyproject.toml")
    for name in ("default.txt", "cpu.txt", "dev.txt"):
        shutil.copyfile(repository / "requirements" / name, tmp_path / name)
    digest = lockfile.dependency_digest(tmp_path / "pyproject.toml")
    for name in ("default.txt", "cpu.txt", "dev.txt"):
        path = tmp_path / name
        recorded = lockfile.read_lock(path).digest
        path.write_text(path.read_text().replace(recorded, digest))
    return tmp_path


def faults(checkout: Path) -> list[str]:
    return check.check(checkout, checkout / "pyproject.toml")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_untouched_locks_have_no_fault(checkout: Path) -> None:
    assert faults(checkout) == []


def test_a_new_dependency_makes_every_lock_stale_and_is_named(checkout: Path) -> None:
    edit(checkout / "pyproject.toml", '"typer>=0.16",', '"typer>=0.16", "left-pad>=1",')
    found = faults(checkout)
    assert sum("other dependencies" in fault for fault in found) == 3
    assert any(fault.startswith("cpu.txt: has no left-pad") for fault in found)


def test_comments_and_other_tables_make_no_lock_stale(checkout: Path) -> None:
    edit(checkout / "pyproject.toml", "# record plane", "# the plane of records")
    edit(checkout / "pyproject.toml", "line-length = 100", "line-length = 101")
    assert faults(checkout) == []


def test_a_pin_outside_its_range_is_named(checkout: Path) -> None:
    pinned = lockfile.read_lock(checkout / "cpu.txt").pins["typer"].version
    edit(checkout / "cpu.txt", f"typer=={pinned}", "typer==0.1")
    found = faults(checkout)
    assert any("typer==0.1 does not satisfy 'typer>=0.16'" in fault for fault in found)
    assert any("different releases of typer" in fault for fault in found)


def test_a_pin_without_hash_is_named(checkout: Path) -> None:
    with (checkout / "dev.txt").open("a") as lock:
        lock.write("left-pad==1.0\n")
    assert faults(checkout) == ["dev.txt: left-pad==1.0 has no sha256; run `make lock`"]


@pytest.mark.parametrize(
    "line", ["--find-links /srv/wheels", "--index-url https://index.example/simple", "./local"]
)
def test_a_line_that_ties_the_lock_to_a_place_is_named(checkout: Path, line: str) -> None:
    with (checkout / "default.txt").open("a") as lock:
        lock.write(f"{line}\n")
    assert any(line in fault for fault in faults(checkout))


def test_a_path_in_a_comment_is_named_with_its_line(checkout: Path) -> None:
    edit(checkout / "cpu.txt", "    # via", "    # via /home/someone/constraints.txt")
    assert any("names a place of one machine" in fault for fault in faults(checkout))


def test_only_cuda_packages_may_be_in_one_lock_alone(checkout: Path) -> None:
    sha = "0" * 64
    with (checkout / "default.txt").open("a") as lock:
        lock.write(f"nvidia-new-thing==1.0 --hash=sha256:{sha}\n")
        lock.write(f"left-pad==1.0 --hash=sha256:{sha}\n")
    assert faults(checkout) == [
        "left-pad is in only one of default.txt and cpu.txt; run `make lock`"
    ]


def test_a_missing_lock_is_named(checkout: Path) -> None:
    (checkout / "cpu.txt").unlink()
    assert "cpu.txt: does not exist; run `make lock`" in faults(checkout)


def test_both_builds_of_torch_are_locked_to_one_release(checkout: Path) -> None:
    cpu = lockfile.read_lock(checkout / "cpu.txt").pins["torch"]
    default = lockfile.read_lock(checkout / "default.txt").pins["torch"]
    assert cpu.version == f"{default.version}+cpu"
    assert "nvidia-cublas" in lockfile.read_lock(checkout / "default.txt").pins
    assert "nvidia-cublas" not in lockfile.read_lock(checkout / "cpu.txt").pins


@given(st.permutations(["a>=1", "b", "c[extra]==2; python_version >= '3.11'"]))
def test_the_order_of_dependencies_does_not_change_the_digest(
    tmp_path_factory: pytest.TempPathFactory, dependencies: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("digest")

    def digest(of: list[str]) -> str:
        path = folder / "pyproject.toml"
        path.write_text(f"[project]\ndependencies = {json.dumps(of)}\n")
        return lockfile.dependency_digest(path)

    assert digest(dependencies) == digest(sorted(dependencies))
    assert digest(dependencies) != digest(dependencies[:-1])
