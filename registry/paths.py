"""Where everything that is not source lives: one state folder, one layout.

``IRONWORKS_STATE`` names the folder (default ``./var``); every process resolves it to
an absolute path once, so that a later change of directory can't split the state in two.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from registry.errors import InputError

STATE_VARIABLE = "IRONWORKS_STATE"

# sun_path holds 108 bytes with the closing NUL (unix(7)).
SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class StatePaths:
    """The layout of a state folder.

    Args:
        root: absolute path of the state folder; it need not exist yet.
    """

    root: Path

    @classmethod
    def from_env(cls) -> StatePaths:
        """Return the folder that ``IRONWORKS_STATE`` names, else ``./var``, made absolute."""
        return cls(Path(os.environ.get(STATE_VARIABLE) or "var").expanduser().resolve())

    @property
    def intake(self) -> Path:
        """Drop folder: ``intake/<model>/<version>/`` holds one checkpoint."""
        return self.root / "intake"

    @property
    def registry(self) -> Path:
        """Root of the record plane: database, blobs, views, policy."""
        return self.root / "registry"

    @property
    def run(self) -> Path:
        """Pid files and Unix sockets of running processes."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """One log file per process."""
        return self.root / "log"

    @property
    def dagster(self) -> Path:
        """``DAGSTER_HOME``."""
        return self.root / "dagster"

    @property
    def backup(self) -> Path:
        """Copies of the registry's database."""
        return self.root / "backup"

    @property
    def demo(self) -> Path:
        """Download cache and converted demo model."""
        return self.root / "demo"

    def create(self) -> StatePaths:
        """Make the folders that are missing; ``run`` is private to the user.

        Raises:
            InputError: the state folder can't be written.
        """
        try:
            for path in (self.intake, self.registry, self.log, self.dagster, self.demo):
                path.mkdir(parents=True, exist_ok=True)
            self.run.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the state folder can't be made: {error.strerror}",
                where=str(error.filename or self.root),
                fix=f"set {STATE_VARIABLE} to a folder that you may write",
            ) from error
        return self

    def socket(self, name: str) -> Path:
        """Return the path for the Unix socket ``<name>.sock``.

        A path that is too long for ``sun_path`` goes to a private folder in the
        temporary directory whose name is derived from the state folder, so that
        every process of one state folder computes the same place.

        Raises:
            InputError: that private folder belongs to someone else.
        """
        file = name if name.endswith(".sock") else f"{name}.sock"
        path = self.run / file
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
        key = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"ironworks-{key}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077 or folder.is_symlink():
            raise InputError(
                "the folder for sockets is not private to this user",
                where=str(folder),
                fix=f"remove it, or set {STATE_VARIABLE} to a shorter path",
            )
        return folder / file
