"""Run a program with a deadline that holds even when the program can't be killed.

A process that waits in the kernel (state D), as one does that talks to a broken GPU driver,
ignores SIGKILL until the wait ends, which may be never. ``subprocess.run(timeout=…)`` then
blocks for ever, since it waits for the killed child. Here such a child is killed, written
down as abandoned, and left; how many may pile up is bounded.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from registry.errors import IronworksError

MAX_ABANDONED = 4
"""Children in state D that one process may leave behind; each pins memory and a pid."""

NOT_FOUND = 127
"""Exit status of a program that does not exist, as a shell gives it."""

_MAX_OUTPUT = 1 << 20
_REAP_SECONDS = 0.3


class AbandonedChildrenError(IronworksError):
    """Too many children hang in the kernel for another to be risked."""

    code = "abandoned_children"


@dataclass(frozen=True)
class Ran:
    """How a program ended.

    Attributes:
        command: what was run.
        exit_code: its status; negative: the signal that ended it; None: the deadline passed.
        stdout: what it wrote, at most 1 MiB.
        stderr: the same, of its error stream.
        seconds: how long it took.
        abandoned: it did not die when it was killed: it hangs in the kernel.
    """

    command: tuple[str, ...]
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    abandoned: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended in time with status 0."""
        return self.exit_code == 0

    @property
    def found(self) -> bool:
        """Whether there is such a program."""
        return self.exit_code != NOT_FOUND

    @property
    def why(self) -> str:
        """The end in words, with the last line that it wrote."""
        name = self.command[0]
        if self.exit_code is None:
            hangs = ", and can't be killed: it hangs in the kernel" if self.abandoned else ""
            return f"{name} did not finish within {self.seconds:.0f} s{hangs}"
        if self.exit_code == NOT_FOUND:
            return f"there is no program {name}"
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return f"{name} ended with {self.exit_code}" + (f": {lines[-1][:200]}" if lines else "")


class Runner(Protocol):
    """Runs a program to its end or its deadline."""

    def __call__(self, command: Sequence[str], *, deadline_seconds: float, stdin: str = "") -> Ran:
        """Run it; never raises for what the program does, and never outlasts the deadline."""
        ...


class ProcessRunner:
    """The `Runner` of a real machine.

    Args:
        env: variables in addition to those of this process.
        max_abandoned: children that may hang before this one refuses to start more.
    """

    def __init__(
        self, env: Mapping[str, str] | None = None, *, max_abandoned: int = MAX_ABANDONED
    ) -> None:
        self._env = dict(env or {})
        self._max_abandoned = max_abandoned
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """How many killed children still exist."""
        with self._lock:
            self._abandoned = [child for child in self._abandoned if child.poll() is None]
            return len(self._abandoned)

    def __call__(self, command: Sequence[str], *, deadline_seconds: float, stdin: str = "") -> Ran:
        """Run ``command``; its output goes through files, so that no grandchild can hold it up.

        Raises:
            AbandonedChildrenError: as many children hang in the kernel as are allowed.
        """
        if self.abandoned >= self._max_abandoned:
            raise AbandonedChildrenError(
                f"{self._max_abandoned} child processes hang in the kernel",
                where=" ".join(command)[:200],
                fix="the machine needs a reboot",
            )
        started = time.monotonic()
        with (
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
            tempfile.TemporaryFile() as source,
        ):
            source.write(stdin.encode())
            source.seek(0)
            try:
                child = subprocess.Popen(
                    command,
                    stdin=source,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, **self._env},
                    start_new_session=True,
                )
            except (FileNotFoundError, NotADirectoryError):
                return Ran(tuple(command), NOT_FOUND, "", "", time.monotonic() - started)
            except OSError as error:
                # Such as a program that may not be executed (a shell answers 126).
                why = error.strerror or str(error)
                return Ran(tuple(command), 126, "", why, time.monotonic() - started)
            in_time = _ends(child, deadline_seconds)
            hangs = False
            if not in_time:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                hangs = not _ends(child, _REAP_SECONDS)
            if hangs:
                with self._lock:
                    self._abandoned.append(child)
            else:
                child.wait()
            return Ran(
                tuple(command),
                child.returncode if in_time else None,
                _read(stdout),
                _read(stderr),
                time.monotonic() - started,
                abandoned=hangs,
            )


def _ends(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a child without reaping it; False when the time is over."""
    descriptor = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        os.close(descriptor)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_OUTPUT).decode("utf-8", errors="replace")
