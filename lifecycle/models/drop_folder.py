"""What lies in the drop folder, and which of it to take in.

``observe`` reads the disk, ``decide`` is pure; the sensor is a thin wrapper round both.
A directory ``<intake>/<model>/<version>/`` is taken in once it is complete and its files
have been left alone for the settle time. Names that begin with a dot belong to copies in
progress (``rsync``, our own temporary directories) and are not looked at.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lifecycle.models.partitions import VersionKey
from registry.errors import InputError

Completeness = Callable[[Path], str | None]
"""Tells why a directory is not complete yet, or None: ``registry``'s ``is_complete``."""


@dataclass(frozen=True)
class Dropped:
    """One directory of the drop folder at one moment."""

    name: str
    """``model@version`` as the directory names spell it."""
    fingerprint: str
    """Digest over (path, size, mtime) of all files: changes when any file does."""
    quiet_seconds: float
    """Time since the last change of a file, by the kernel's own (unforgeable) ctime."""
    problem: str | None
    """Why it can't be taken in now: incomplete, unreadable, or badly named."""


@dataclass(frozen=True)
class Decision:
    """What the sensor does with one look at the folder."""

    intake: tuple[Dropped, ...]
    """Directories to start a run for."""
    waiting: tuple[str, ...]
    """One sentence for each directory that is not ready, to show in the UI."""
    handled: Mapping[str, str]
    """Fingerprint by name of everything that a run was started for: the next cursor."""


def observe(
    intake: Path, handled: Mapping[str, str], is_complete: Completeness, now: float
) -> list[Dropped]:
    """Look at every version directory below ``intake``.

    Args:
        intake: the drop folder; need not exist.
        handled: fingerprint by name of what has been taken in; those are not opened again.
        is_complete: the completeness test for a directory.
        now: Unix time in seconds.
    """
    return [
        _look(directory, handled, is_complete, now)
        for model in _subdirectories(intake)
        for directory in _subdirectories(model)
    ]


def decide(dropped: list[Dropped], handled: Mapping[str, str], settle_seconds: float) -> Decision:
    """Choose which directories to take in, and say what the others wait for."""
    intake: list[Dropped] = []
    waiting: list[str] = []
    for item in dropped:
        if handled.get(item.name) == item.fingerprint:
            continue
        if item.problem is not None:
            waiting.append(f"{item.name}: {item.problem}")
        elif item.quiet_seconds < settle_seconds:
            waiting.append(
                f"{item.name}: changed {max(0.0, item.quiet_seconds):.0f} s ago, "
                f"waiting for {settle_seconds:g} s without change"
            )
        else:
            intake.append(item)
    present = {item.name for item in dropped}
    kept = {name: print_ for name, print_ in handled.items() if name in present}
    return Decision(
        intake=tuple(intake),
        waiting=tuple(waiting),
        handled=kept | {item.name: item.fingerprint for item in intake},
    )


def _look(
    directory: Path, handled: Mapping[str, str], is_complete: Completeness, now: float
) -> Dropped:
    name = f"{directory.parent.name}@{directory.name}"
    try:
        fingerprint, changed = _fingerprint(directory)
        if handled.get(name) == fingerprint:
            problem = None
        else:
            VersionKey(directory.parent.name, directory.name)
            problem = is_complete(directory)
    except InputError as error:
        return Dropped(name, "", 0.0, str(error))
    except OSError as error:
        # Files come and go while someone copies; the next look decides.
        return Dropped(name, "", 0.0, f"can't be read: {error.strerror}")
    return Dropped(name, fingerprint, now - changed, problem)


def _fingerprint(directory: Path) -> tuple[str, float]:
    """Return the digest over all files and the Unix time of the latest change of any of them."""
    digest = hashlib.sha256()
    changed_ns = directory.stat().st_mtime_ns
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        if path.is_dir() and not path.is_symlink():
            changed_ns = max(changed_ns, status.st_mtime_ns)
            continue
        relative = path.relative_to(directory).as_posix()
        digest.update(f"{relative}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        # ctime, since a copy that preserves times sets an old mtime on a file just written.
        changed_ns = max(changed_ns, status.st_ctime_ns)
    return digest.hexdigest()[:16], changed_ns / 1e9


def _subdirectories(parent: Path) -> Iterator[Path]:
    if not parent.is_dir():
        return
    for child in sorted(parent.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            yield child
