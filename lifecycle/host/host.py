"""The one way to look at a machine, so that a folder can stand for one in a test.

Everything that verification, the exporter and the recovery read or do goes through `Host`.
Paths are written as on the machine (``/proc/sys/…``) and looked up below the host's root.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Protocol

from lifecycle.host.commands import ProcessRunner, Ran, Runner
from registry.errors import IronworksError

COMMAND_SECONDS = 5.0
"""Deadline of a command for which none is given."""

ROOT_VARIABLE = "IRONWORKS_HOST_ROOT"
"""Top of the tree that stands for this machine; "/" unless a test says otherwise."""

_MAX_BYTES = 1 << 22
_CHUNK = 1 << 16
_MAX_LINKS = 40
_RUNNER = ProcessRunner()


class HostAccessError(IronworksError):
    """Something of the machine exists and can't be read or written by this user.

    A check that meets it knows nothing: its outcome is *unknown*, never "bad".
    """

    code = "host_access"


class Clock(Protocol):
    """Time, in seconds; a test may hold it."""

    def time(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unnamed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an unnamed moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Host:
    """A machine, or a folder that looks like one.

    Args:
        root: ``/``, or the top of a fixture tree; links in it are resolved inside it.
        runner: runs commands; None runs them for real, through the one runner of this
            process, so that the children it had to leave are counted together.
        clock: tells the time; None takes the machine's.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        runner: Runner | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.root = root
        self.runner: Runner = runner or _RUNNER
        self.clock: Clock = clock or SystemClock()

    def read(self, path: str) -> str | None:
        """The text of a file, at most 4 MiB of it; None if there is no such file.

        Raises:
            HostAccessError: it exists and can't be read.
        """
        raw = self.read_bytes(path)
        return None if raw is None else raw.decode("utf-8", errors="replace")

    def read_bytes(self, path: str) -> bytes | None:
        """The same, undecoded (EFI variables, command lines)."""
        target = self._inside(path)
        try:
            with target.open("rb", buffering=0) as stream:
                return _read_some(stream)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ProcessLookupError):
            return None
        except OSError as error:
            raise _denied(path, error, "read") from error

    def read_records(self, path: str) -> str | None:
        """All that a log device such as ``/dev/kmsg`` holds now; never waits for more.

        Raises:
            HostAccessError: it exists and can't be read.
        """
        target = self._inside(path)
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _denied(path, error, "read") from error
        chunks: list[bytes] = []
        try:
            while True:
                try:
                    # One read gives one record of a log device, the next chunk of a file.
                    chunk = os.read(descriptor, 8192)
                except BrokenPipeError:
                    continue  # the record was overwritten meanwhile; the next read goes on
                except BlockingIOError:
                    break
                except OSError as error:
                    raise _denied(path, error, "read") from error
                if not chunk:
                    break
                chunks.append(chunk)
        finally:
            os.close(descriptor)
        return b"".join(chunks).decode("utf-8", errors="replace")

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder; links are followed inside the root."""
        try:
            return self._inside(path).exists()
        except OSError:
            return False

    def readlink(self, path: str) -> str | None:
        """Where a link points, as written in it; None if it is no link.

        Raises:
            HostAccessError: it may not be looked at (another user's ``/proc/PID/exe``).
        """
        parent = self._inside(str(PurePosixPath(path).parent))
        try:
            return str((parent / PurePosixPath(path).name).readlink())
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            return None
        except OSError as error:
            if isinstance(error, PermissionError):
                raise _denied(path, error, "read") from error
            return None

    def resolve(self, path: str) -> str | None:
        """The path behind all links, as ``readlink -f`` gives it; None if it leads nowhere."""
        target = self._inside(path)
        if not target.exists():
            return None
        if self.root == Path("/"):
            return str(target.resolve())
        return "/" + str(target.relative_to(self.root))

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, sorted; what may not be looked into is left out."""
        prefix = len(str(self.root).rstrip("/"))
        found = self.root.glob(pattern.lstrip("/"))
        return sorted(str(path)[prefix:] for path in found)

    def write(self, path: str, text: str, *, deadline_seconds: float = COMMAND_SECONDS) -> None:
        """Write to an existing file (sysfs, procfs).

        A child process writes: such a write may block in the kernel for ever.

        Raises:
            HostAccessError: there is no such file, it can't be written, or it takes too long.
        """
        target = self._inside(path)
        if not target.exists():
            raise HostAccessError("there is no such file to write to", where=path)
        ran = self.run(["tee", str(target)], deadline_seconds=deadline_seconds, stdin=text)
        if not ran.ok:
            raise HostAccessError(
                f"{text.strip()!r} can't be written: {ran.why}", where=path, fix="run as root"
            )

    def run(
        self,
        command: Sequence[str],
        *,
        deadline_seconds: float = COMMAND_SECONDS,
        stdin: str = "",
    ) -> Ran:
        """Run a command; how it ended is in the result, nothing is raised for it.

        Raises:
            AbandonedChildrenError: too many earlier ones hang in the kernel.
        """
        return self.runner(command, deadline_seconds=deadline_seconds, stdin=stdin)

    def _inside(self, path: str) -> Path:
        """The real path, with every link on the way resolved below the root."""
        if self.root == Path("/"):
            return Path(path)
        parts = list(reversed(PurePosixPath(path).parts[1:]))
        done: list[str] = []
        for _ in range(_MAX_LINKS + len(parts) * _MAX_LINKS):
            if not parts:
                return self.root.joinpath(*done)
            part = parts.pop()
            if part == "..":
                del done[-1:]
                continue
            candidate = self.root.joinpath(*done, part)
            if candidate.is_symlink():
                link = candidate.readlink()
                if link.is_absolute():
                    done.clear()
                parts.extend(reversed([p for p in link.parts if p != "/"]))
                continue
            done.append(part)
        raise HostAccessError("its links go in a circle", where=path)


def _read_some(stream: FileIO) -> bytes:
    """Read in small chunks: for a file of /proc/sys the kernel allocates all that is asked for."""
    found = bytearray()
    while len(found) < _MAX_BYTES and (chunk := stream.read(_CHUNK)):
        found += chunk
    return bytes(found)


def this_host() -> Host:
    """The machine that this process runs on, or the tree that ``IRONWORKS_HOST_ROOT`` names."""
    return Host(Path(os.environ.get(ROOT_VARIABLE) or "/"))


def _denied(path: str, error: OSError, verb: str) -> HostAccessError:
    return HostAccessError(
        f"it can't be {verb}: {error.strerror}", where=path, fix="run as root to know"
    )
