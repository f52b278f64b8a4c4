"""Long-lived processes with pid files, found again by whoever looks after them next.

A pid alone does not name a process: the kernel gives it away again. Every record holds the
pid *and* its start time, both must match before anything is signalled, and the signal goes
through a pidfd, which can't be recycled between the look and the shot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from registry.errors import ConflictError, IronworksError

# Becomes the program, after two things. It writes its pid file itself, and lets go of the lock
# that it shares with its starter only then: a starter killed between starting a process and
# writing that down would leave one that nobody finds. And it takes back signals: a shell's
# background job (and CI) ignores SIGINT, which programs inherit and Dagster's servers stop on.
_SHIM = """
import json, os, signal, sys
lock, path, fields = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
with open("/proc/self/stat") as stat:
    ticks = int(stat.read().rpartition(")")[2].split()[19])
partial = f"{path}.{os.getpid()}.partial"
with open(partial, "w") as file:
    json.dump({**fields, "pid": os.getpid(), "start_ticks": ticks}, file, indent=1)
os.replace(partial, path)
os.close(lock)
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.execv(sys.argv[4], sys.argv[4:])
"""


class ProcessError(IronworksError):
    """A process could not be started, or ended although it should run."""

    code = "process"


@dataclass(frozen=True)
class ProcessRecord:
    """One process as its pid file tells it.

    Attributes:
        name: unique in the run folder; names the pid file and, by default, the log.
        pid: also the process group and the session, which the process leads.
        start_ticks: clock ticks between boot and the start (field 22 of /proc/PID/stat).
        boot_id: the kernel's boot identifier; ticks of another boot mean nothing.
        command: argument vector, the program's path first.
        port: TCP port it listens on, None if it has none.
        log: file that receives its output.
        started_at: wall clock of the start, seconds since the epoch, for people.
    """

    name: str
    pid: int
    start_ticks: int
    boot_id: str
    command: tuple[str, ...]
    port: int | None
    log: str
    started_at: int

    def is_running(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        if self.boot_id != _boot_id():
            return False
        _reap(self.pid)
        return _start_ticks(self.pid) == self.start_ticks


class ProcessTable:
    """The pid files of one run folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> ProcessRecord:
        """Start a process in its own session and write its pid file.

        Args:
            name: what to call it; one process per name.
            command: argument vector; the first item must be an absolute path.
            log: file to which stdout and stderr are appended.
            port: TCP port that the process will listen on, for the record only.
            env: variables added to this process's own.
            cwd: working directory, by default this process's own.

        Raises:
            ConflictError: a process of that name runs already.
            ProcessError: the program does not exist or can't be executed.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._lock(name) as lock:
            running = self.find(name)
            if running is not None:
                raise ConflictError(f"{name} runs already", where=f"pid {running.pid}")
            if not os.access(command[0], os.X_OK):
                raise ProcessError(
                    f"{name} can't be started: no such program",
                    where=command[0],
                    fix="run `make install`",
                )
            fields = {
                "name": name,
                "boot_id": _boot_id(),
                "command": list(command),
                "port": port,
                "log": str(log),
                "started_at": int(time.time()),
            }
            with log.open("ab") as output:
                child = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", "-c", _SHIM),
                        *(str(lock), str(self._path(name)), json.dumps(fields)),
                        *command,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            # It outlives us. `is_running` reaps it if it dies before we do.
            child.returncode = 0
            return self._await_record(name, child.pid, log)

    def find(self, name: str) -> ProcessRecord | None:
        """The running process of that name, or None; forgets the pid file of a dead one."""
        record = self._read(self._path(name))
        if record is None or record.is_running():
            return record
        # Whoever holds the lock is about to write a new one, which must not be removed.
        with contextlib.suppress(BlockingIOError), self._lock(name, wait=False):
            if self._read(self._path(name)) == record:
                self._path(name).unlink(missing_ok=True)
        return None

    def last(self, name: str) -> ProcessRecord | None:
        """The latest process of that name that has a pid file, running or not."""
        return self._read(self._path(name))

    def running(self) -> list[ProcessRecord]:
        """All running processes, oldest first."""
        found = [self.find(path.stem) for path in sorted(self._folder.glob("*.json"))]
        return sorted((r for r in found if r is not None), key=lambda r: r.start_ticks)

    def stop(self, name: str, *, grace_seconds: float) -> bool:
        """End a process: SIGTERM, wait, then SIGKILL to its whole group.

        Args:
            name: which; an unknown or dead one is no error.
            grace_seconds: how long it may take after SIGTERM.

        Returns:
            False if nothing of that name ran.
        """
        record = self.find(name)
        if record is None:
            return False
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return False
        try:
            if not record.is_running():  # between find() and pidfd_open() it may have ended
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            ended = _wait(descriptor, grace_seconds)
            # The group is killed in either case: workers that a dead leader left behind
            # keep its group id alive, and an empty group only answers "no such process".
            _kill_group(record.pid)
            if not ended:
                _wait(descriptor, 10)
        finally:
            os.close(descriptor)
        _reap(record.pid)
        self._path(name).unlink(missing_ok=True)
        return True

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    @contextmanager
    def _lock(self, name: str, *, wait: bool = True) -> Iterator[int]:
        """Hold the right to start a process of that name; the lock's file descriptor.

        Raises:
            BlockingIOError: somebody else holds it and ``wait`` is false.
        """
        descriptor = os.open(self._folder / f"{name}.starting", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield descriptor
        finally:
            os.close(descriptor)

    def _await_record(self, name: str, pid: int, log: Path) -> ProcessRecord:
        """The pid file that a process which was just started writes.

        Raises:
            ProcessError: it ended before it had.
        """
        while True:
            record = self._read(self._path(name))
            if record is not None and record.pid == pid:
                return record
            _reap(pid)
            if _start_ticks(pid) is None:
                raise ProcessError(f"{name} ended at once", where=str(log), fix="read the log")
            time.sleep(0.005)

    @staticmethod
    def _read(path: Path) -> ProcessRecord | None:
        try:
            fields = json.loads(path.read_text())
            return ProcessRecord(**{**fields, "command": tuple(fields["command"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise ProcessError(
                "a pid file can't be read", where=str(path), fix="remove it if nothing runs"
            ) from error


def tail(log: Path, lines: int) -> list[str]:
    """The last lines of a log file; none if it does not exist."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 400 * lines))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (proc_pid_stat(5)); None for no process or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, field 2, is in parentheses and may hold anything, parentheses too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _reap(pid: int) -> None:
    """Collect the exit status if the process is a dead child of ours."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _wait(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
