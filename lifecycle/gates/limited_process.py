"""Run a program under limits, and leave nothing of it behind.

The program gets its own session and hence its own process group, which is killed as a
whole at the end: a grandchild that outlives its parent would otherwise keep its memory.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True)
class Limits:
    """What a program may use."""

    wall_seconds: float
    cpu_seconds: int
    """Summed over threads (RLIMIT_CPU)."""
    address_space_bytes: int
    """Virtual memory (RLIMIT_AS); 0 sets no limit."""
    file_bytes: int = 1024 * 1024
    """Largest file it may write (RLIMIT_FSIZE)."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    exit_code: int | None
    """Negative: the signal that ended it; None: the deadline passed."""
    stdout: str
    stderr_tail: str
    """The last 2,000 characters."""

    @property
    def why(self) -> str:
        """The end in words."""
        if self.exit_code is None:
            return "it did not finish before the deadline"
        if self.exit_code == -signal.SIGXCPU:
            return "it used up its processor time"
        if self.exit_code < 0:
            return f"it was ended by {signal.Signals(-self.exit_code).name}"
        return f"it exited with {self.exit_code}"


def run_limited(command: Sequence[str], *, env: Mapping[str, str], limits: Limits) -> Ended:
    """Run ``command`` to its end or its deadline; its process group is dead on return.

    Raises:
        OSError: the program could not be started.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        # Files, not pipes: their size is limited too, and a grandchild that keeps one
        # open can't keep us waiting.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(env),
            start_new_session=True,
        )
        finished = False
        try:
            _limit(process.pid, limits)
            finished = _wait(process.pid, limits.wall_seconds)
        finally:
            # Before the leader is reaped: until then nobody else can have the group's number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            exit_code = process.wait()
        return Ended(exit_code if finished else None, _read(stdout), _read(stderr)[-2000:])


def _wait(pid: int, seconds: float) -> bool:
    """Wait for the end of a child without reaping it; False when the time is over."""
    descriptor = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return bool(ready)
    finally:
        os.close(descriptor)


def _limit(pid: int, limits: Limits) -> None:
    # prlimit on the running child and not preexec_fn, which may deadlock in a process
    # that has threads, as a Dagster run worker has. Python itself is still starting up.
    wanted = [
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ]
    if limits.address_space_bytes:
        wanted.append((resource.RLIMIT_AS, limits.address_space_bytes))
    with contextlib.suppress(ProcessLookupError):
        for name, value in wanted:
            _, hard = resource.prlimit(pid, name)
            bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, name, (bounded, bounded))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", errors="replace")
