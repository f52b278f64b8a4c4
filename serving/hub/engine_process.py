"""One engine process and the socket to it: spawn, connect, kill, wait.

The API listens and the engine connects, so a path that an attacker pre-creates is never
trusted: the socket is made with mode 0600 and only the process that was spawned (by
SO_PEERCRED) is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

_PEERCRED = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_KILL_WAIT_SECONDS = 10.0


class EngineProcess:
    """A running engine process with its connection."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self.reader = reader
        self.writer = writer

    @property
    def pid(self) -> int:
        """Process id; stays known after the end."""
        return self._process.pid

    @classmethod
    async def spawn(
        cls, command: Sequence[str], socket_path: Path, *, deadline_seconds: float
    ) -> EngineProcess:
        """Start ``command --socket socket_path`` and wait for it to connect.

        Raises:
            ChildProcessError: it ended, or did not connect in time; the text says how.
            OSError: the socket or the process could not be made.
        """
        listener = _listen(socket_path)
        process: asyncio.subprocess.Process | None = None
        try:
            process = await asyncio.create_subprocess_exec(
                *command, "--socket", str(socket_path), stdin=asyncio.subprocess.DEVNULL
            )
            connection = await _accept(listener, process, deadline_seconds)
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            if process is not None:
                await _kill(process)
            raise
        finally:
            listener.close()
            socket_path.unlink(missing_ok=True)
        return cls(process, reader, writer)

    async def kill(self) -> str:
        """End the process at once if it still runs; how it ended, in words."""
        self.writer.close()
        await _kill(self._process)
        return describe_exit(self._process.returncode)

    async def wait(self, seconds: float) -> bool:
        """Whether the process ended by itself within ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def exit_text(self) -> str:
        """How the process ended, in words ("is still running" while it runs)."""
        return describe_exit(self._process.returncode)


def describe_exit(returncode: int | None) -> str:
    """A process's end in words: ``was killed by SIGKILL``, ``exited with status 3``."""
    if returncode is None:
        return "is still running"
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        return f"was killed by {name}"
    return f"exited with status {returncode}"


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o600)  # before listen(): nobody could connect until now
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


async def _accept(
    listener: socket.socket, process: asyncio.subprocess.Process, deadline_seconds: float
) -> socket.socket:
    accepting = asyncio.create_task(_accept_child(listener, process.pid))
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait(
            (accepting, ending),
            timeout=deadline_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if accepting.done():
            return accepting.result()
        if ending.done():
            raise ChildProcessError(f"{describe_exit(process.returncode)} before it connected")
        raise ChildProcessError(f"did not connect within {deadline_seconds:g} s")
    finally:
        for task in (accepting, ending):
            task.cancel()
        await asyncio.gather(accepting, ending, return_exceptions=True)


async def _accept_child(listener: socket.socket, pid: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(listener)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        if _PEERCRED.unpack(credentials)[0] == pid:
            return connection
        connection.close()


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # A process in uninterruptible sleep outlives SIGKILL; don't hang the replica on it.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_WAIT_SECONDS):
            await process.wait()
