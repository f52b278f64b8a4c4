"""Checks, without a network, that the locks fit ``pyproject.toml`` and one another.

``python requirements/check.py`` prints each fault and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import lockfile
from lockfile import Lock, Pin, normalise
from packaging.requirements import Requirement

RELOCK = "run `make lock`"

# An address or an absolute path would tie the lock to one machine or one package index.
_PLACE = re.compile(r"[a-z]+://|(?<![\w.])/(?:\w+/)+")


def check(folder: Path, pyproject: Path) -> list[str]:
    """Return the faults of the three locks in ``folder``, each with what to do; [] = good."""
    document = tomllib.loads(pyproject.read_text())
    product = document["project"]["dependencies"]
    dev = document["dependency-groups"]["dev"]
    wanted = {"default.txt": product, "cpu.txt": product, "dev.txt": dev}
    digest = lockfile.dependency_digest(pyproject)
    locks: dict[str, Lock] = {}
    faults: list[str] = []
    for name, requirements in wanted.items():
        try:
            lock = lockfile.read_lock(folder / name)
        except FileNotFoundError:
            faults.append(f"{name}: does not exist; {RELOCK}")
            continue
        locks[name] = lock
        faults += [f"{name}: {fault}" for fault in check_lock(lock, requirements, digest)]
    if len(locks) == len(wanted):
        faults += check_agreement(locks["default.txt"], locks["cpu.txt"], locks["dev.txt"])
    return faults


def check_lock(lock: Lock, requirements: list[str], digest: str) -> Iterator[str]:
    """Yield what is wrong with one lock: out of date, unsatisfied, without hashes, tied to a place.

    Args:
        lock: the lock.
        requirements: what it must satisfy, as written in ``pyproject.toml``.
        digest: of the dependency tables as they are now.
    """
    if lock.digest != digest:
        yield f"was made from other dependencies than pyproject.toml names now; {RELOCK}"
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        pin = lock.pins.get(normalise(requirement.name))
        if pin is None:
            yield f"has no {requirement.name}, which pyproject.toml requires; {RELOCK}"
        elif not requirement.specifier.contains(pin.version, prereleases=True):
            yield f"{pin.name}=={pin.version} does not satisfy '{text}'; {RELOCK}"
    for pin in lock.pins.values():
        if not pin.hashes:
            yield f"{pin.name}=={pin.version} has no sha256; {RELOCK}"
    for line in lock.other_lines:
        yield f"has a line that is no pin: '{line[:80]}'; {RELOCK}"
    for number, line in enumerate(lock.path.read_text().splitlines(), start=1):
        if _PLACE.search(line):
            yield f"line {number} names a place of one machine or index; {RELOCK}"


def check_agreement(default: Lock, cpu: Lock, dev: Lock) -> Iterator[str]:
    """Yield where the locks differ in more than torch's build."""
    for name in sorted(default.pins.keys() | cpu.pins.keys()):
        yield from _differences(name, default.pins.get(name), cpu.pins.get(name))
    for name in sorted(dev.pins.keys() & default.pins.keys()):
        if dev.pins[name].version != default.pins[name].version:
            yield f"dev.txt and default.txt pin different releases of {name}; {RELOCK}"


def _differences(name: str, default: Pin | None, cpu: Pin | None) -> Iterator[str]:
    if default is None or cpu is None:
        if not (cpu is None and default is not None and default.is_cuda):
            yield f"{name} is in only one of default.txt and cpu.txt; {RELOCK}"
    elif name == "torch":
        if default.public_version != cpu.public_version:
            yield f"default.txt and cpu.txt pin different releases of torch; {RELOCK}"
    elif default.version != cpu.version:
        yield f"default.txt and cpu.txt pin different releases of {name}; {RELOCK}"


def main() -> int:
    """Check the locks of this checkout."""
    faults = check(lockfile.FOLDER, lockfile.PYPROJECT)
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print("locks: match pyproject.toml and one another")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
