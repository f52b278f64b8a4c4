"""Reads the locks and what they were made from. Standard library only.

A lock is pip's requirements format with hashes, as uv writes it, under a header that
carries the digest of the dependency tables of ``pyproject.toml``.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parent
PYPROJECT = REPOSITORY / "pyproject.toml"

DIGEST_LINE = "# dependencies of pyproject.toml: sha256:"

# torch's CPU and CUDA builds differ in version label, hashes and dependencies; nothing else may.
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")

_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*==\s*([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")


@dataclass(frozen=True)
class Pin:
    """One locked distribution.

    Attributes:
        name: normalised (lower case, ``-`` between words).
        version: exact, with its local label if it has one.
        hashes: sha256 of every file that may be installed for it, hexadecimal.
    """

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def public_version(self) -> str:
        """The version without its local label (``2.13.0`` of ``2.13.0+cpu``)."""
        return self.version.partition("+")[0]

    @property
    def is_cuda(self) -> bool:
        """Whether only torch's CUDA build needs it."""
        return self.name.startswith(CUDA_PACKAGES)


@dataclass(frozen=True)
class Lock:
    """A lock file.

    Attributes:
        path: where it lies.
        digest: of the dependency tables it was made from, "" if it has no header.
        pins: by normalised name.
        other_lines: lines that are neither a pin, a hash nor a comment.
    """

    path: Path
    digest: str
    pins: dict[str, Pin]
    other_lines: tuple[str, ...]


def read_lock(path: Path) -> Lock:
    """Read one lock file.

    Raises:
        FileNotFoundError: there is none.
    """
    text = path.read_text()
    digest = ""
    pins: dict[str, Pin] = {}
    others: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if line.startswith(DIGEST_LINE):
            digest = line.removeprefix(DIGEST_LINE).strip()
        elif not stripped or stripped.startswith("#"):
            continue
        elif entry := _ENTRY.match(stripped):
            name = normalise(entry[1])
            pins[name] = Pin(name, entry[3], tuple(_HASH.findall(stripped)))
        else:
            others.append(stripped)
    return Lock(path, digest, pins, tuple(others))


def dependency_digest(pyproject: Path = PYPROJECT) -> str:
    """Sha256 (hexadecimal) over the tables of ``pyproject.toml`` that decide what is locked.

    Formatting, comments and every other table leave it as it is.
    """
    document = tomllib.loads(pyproject.read_text())
    tables = {
        "requires-python": document["project"].get("requires-python", ""),
        "dependencies": sorted(document["project"].get("dependencies", [])),
        "dependency-groups": document.get("dependency-groups", {}),
    }
    canonical = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def normalise(name: str) -> str:
    """The normalised name of a distribution (packaging specification, "Name normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
