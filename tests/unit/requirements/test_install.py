"""The installer against a real pip and a folder of wheels made here; no network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import install
import pytest
from install import Environment, InstallError

from tests.unit.requirements.conftest import pin

# A build backend of the checkout's own, since the environment holds only what the locks name.
BACKEND = """
import zipfile
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "product-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as archive:
        archive.writestr("product.pth", ".")
        info = "product-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\\nName: product\\nVersion: 1.0\\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "product"
version = "1.0"
"""

needs_no_gpu = pytest.mark.skipif(bool(install.find_gpu()), reason="this host has a GPU")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment, made once."""
    environment = Environment(tmp_path_factory.mktemp("made") / "venv")
    environment.create()
    return environment


@pytest.fixture
def environment(made: Environment) -> Iterator[Environment]:
    """It, without what an earlier test has installed."""
    yield made
    (made.root / install.STAMP).unlink(missing_ok=True)
    names = ["torch", "product", "pytool"]
    subprocess.run([made.python, "-m", "pip", "uninstall", "-y", "-q", *names], check=True)


@pytest.fixture
def checkout(tmp_path: Path, wheels: Callable[..., Path]) -> Path:
    """A product whose locks name a tiny torch in two builds, and a tool."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "default.txt").write_text(pin(wheels("torch", "2.0")))
    (folder / "cpu.txt").write_text(pin(wheels("torch", "2.0+cpu")))
    (folder / "dev.txt").write_text(pin(wheels("pytool", "1.0")))
    return folder


def version(environment: Environment, module: str) -> str:
    done = subprocess.run(
        [environment.python, "-c", f"import {module}; print({module}.VERSION)"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@needs_no_gpu
def test_without_a_gpu_the_cpu_build_is_taken_where_it_is_offered(
    environment: Environment, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install.install(environment, checkout, checkout, dev=False)
    assert version(environment, "torch") == "2.0+cpu"
    assert version(environment, "pytool") == ""
    assert "taking cpu.txt: there is no GPU" in capsys.readouterr().out


@needs_no_gpu
def test_without_a_gpu_the_default_build_is_taken_where_there_is_no_other(
    environment: Environment, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next((checkout.parent / "wheels").glob("*+cpu*")).unlink()
    install.install(environment, checkout, checkout, dev=False)
    assert version(environment, "torch") == "2.0"
    assert "does not offer torch 2.0+cpu" in capsys.readouterr().out


def test_with_a_gpu_the_default_build_is_taken(
    environment: Environment, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-0)'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    choice = install.choose_lock(environment, checkout)
    assert choice.lock.name == "default.txt"
    assert "there is a GPU" in choice.reason


def test_a_second_run_asks_pip_nothing(
    environment: Environment, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install.install(environment, checkout, checkout, dev=True)
    for wheel in (checkout.parent / "wheels").iterdir():
        wheel.unlink()
    capsys.readouterr()
    install.install(environment, checkout, checkout, dev=True)
    assert "up to date" in capsys.readouterr().out
    assert version(environment, "pytool") == "1.0"


def test_a_changed_lock_is_installed_and_the_rest_left_alone(
    environment: Environment,
    checkout: Path,
    wheels: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    install.install(environment, checkout, checkout, dev=True)
    (checkout / "dev.txt").write_text(pin(wheels("pytool", "2.0")))
    capsys.readouterr()
    install.install(environment, checkout, checkout, dev=True)
    assert version(environment, "pytool") == "2.0"
    assert "taking" not in capsys.readouterr().out


def test_a_wheel_with_another_hash_is_refused(environment: Environment, checkout: Path) -> None:
    for name in ("default.txt", "cpu.txt"):
        lock = checkout / name
        lock.write_text(lock.read_text().partition("sha256:")[0] + "sha256:" + "0" * 64 + "\n")
    with pytest.raises(InstallError, match="pip failed") as refused:
        install.install(environment, checkout, checkout, dev=False)
    log = Path(refused.value.fix.removeprefix("read "))
    assert "DO NOT MATCH THE HASHES" in log.read_text()
    assert version(environment, "torch") == ""
    assert environment.stamp() == {}


def test_another_python_is_refused_in_plain_words(repository: Path, tmp_path: Path) -> None:
    fake = "import sys; sys.version_info = (3, 9, 0); sys.argv[0] = 'install'; import install; "
    done = subprocess.run(
        [sys.executable, "-c", f"{fake}sys.exit(install.main(['--environment', 'x']))"],
        cwd=repository / "requirements",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("error: Python")
    assert "fix: use Python 3.11" in done.stderr
