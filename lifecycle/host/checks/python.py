"""Group ``environment``: what is installed is what was locked, file by file (L5)."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown
from lifecycle.host.inspection import Inspection, real_path

_STAMP = "ironworks-installed.json"
"""Written by ``requirements/install.py``: which locks the environment was made from."""
_REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
_REINSTALL = "make the environment anew: rm -rf .venv; make install"


def locked_versions(inspection: Inspection) -> Outcome:
    """Every package of the lock is installed in the locked version."""
    locks = _locks(inspection)
    if not locks:
        return unknown("no lock is known for this environment", "make it with `make install`")
    pins: dict[str, str] = {}
    for lock in locks:
        found = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;\\]+)", _read(inspection, lock), re.M)
        pins |= {_normal(name): version for name, version in found}
    installed = {_normal(name): version for name, version, _ in _distributions(inspection)}
    wrong = [
        f"{name} {installed.get(name, 'is missing')} (locked: {version})"
        for name, version in sorted(pins.items())
        if installed.get(name) != version
    ]
    names = ", ".join(lock.rpartition("/")[2] for lock in locks)
    if wrong:
        return failed(f"{len(wrong)} not as in {names}: {'; '.join(wrong[:4])}", _REINSTALL)
    return passed(f"{len(pins)} packages as in {names}")


def installed_files(inspection: Inspection) -> Outcome:
    """No installed file differs from the sha256 that its package recorded."""
    count = size = 0
    wrong: list[str] = []
    for name, _, folder in _distributions(inspection):
        for path, digest in _recorded(folder):
            file = folder.parent / path
            try:
                with file.open("rb") as stream:
                    seen = hashlib.file_digest(stream, "sha256").digest()
                    size += stream.tell()
            except OSError:
                wrong.append(f"{name}: {path} is missing")
                continue
            count += 1
            if base64.urlsafe_b64encode(seen).rstrip(b"=").decode() != digest:
                wrong.append(f"{name}: {path} was changed")
    if wrong:
        return failed(f"{len(wrong)} files: {'; '.join(wrong[:4])}", _REINSTALL)
    if not count:
        return unknown("no package with a RECORD was found")
    return passed(f"{count} files, {size / 1e6:.0f} MB, as recorded at their installation")


def _environment(inspection: Inspection) -> str:
    return inspection.expected.python.environment or sys.prefix


def _locks(inspection: Inspection) -> list[str]:
    if inspection.expected.python.lock:
        return [inspection.expected.python.lock]
    text = inspection.host.read(f"{_environment(inspection)}/{_STAMP}")
    stamp = json.loads(text) if text else {}
    names = [stamp.get("runtime"), "dev" if "dev" in stamp else None]
    return [str(_REQUIREMENTS / f"{name}.txt") for name in names if name]


def _read(inspection: Inspection, path: str) -> str:
    return inspection.host.read(path) or ""


def _distributions(inspection: Inspection) -> Iterator[tuple[str, str, Path]]:
    """Name, version and .dist-info folder of each installed package."""
    pattern = f"{_environment(inspection)}/lib/python3*/site-packages/*.dist-info"
    for folder in inspection.host.glob(pattern):
        head = _read(inspection, f"{folder}/METADATA").partition("\n\n")[0]
        name = re.search(r"^Name: (\S+)", head, re.M)
        version = re.search(r"^Version: (\S+)", head, re.M)
        if name and version:
            yield name[1], version[1], real_path(inspection.host, folder)


def _recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and sha256 of each file of a package (PyPA: "Recording installed projects")."""
    record = folder / "RECORD"
    if not record.is_file():
        return
    with record.open(newline="") as stream:
        for row in csv.reader(stream):
            if len(row) == 3 and row[1].startswith("sha256="):
                yield row[0], row[1].removeprefix("sha256=")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


GROUP = Group("environment", "Python packages", (locked_versions, installed_files))
