"""Shared libraries with chosen names inside, built in about 0.05 s each."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path


def build_library(target: Path, soname: str, *, needed: str = "", rpath: str = "") -> None:
    """Write a library that calls itself ``soname``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_library(soname, needed, rpath))


@functools.cache
def _library(soname: str, needed: str, rpath: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        options = [f"-Wl,-soname,{soname}"]
        if needed:
            _link(work / needed, [f"-Wl,-soname,{needed}"])
            options += ["-Wl,--no-as-needed", str(work / needed)]
        if rpath:
            options += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
        return _link(work / "library.so", options).read_bytes()


def _link(target: Path, options: list[str]) -> Path:
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "/dev/null", "-x", "none"]
    subprocess.run([*command, *options, "-o", str(target)], check=True)
    return target
