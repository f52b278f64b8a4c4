"""Server processes under test: start one, wait until it answers, stop it with its children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil


@dataclass(frozen=True)
class Server:
    """A running server and the name under which it serves the model."""

    url: str
    model: str
    process: subprocess.Popen[bytes]

    def resident_bytes(self) -> int:
        """Resident memory of the process and all its descendants, now."""
        root = psutil.Process(self.process.pid)
        total = 0
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total


def free_port() -> int:
    """A loopback TCP port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2).status_code == 200:
                return
        time.sleep(0.2)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise RuntimeError(f"the server at {url} did not become ready; the end of its log:\n{tail}")


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    port: int,
    model: str,
    ready_path: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> Iterator[Server]:
    """Run ``command`` in its own process group and yield it once ``ready_path`` answers 200.

    Raises:
        RuntimeError: it ended or stayed silent; the message holds the end of its log.
    """
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        _wait_for(url + ready_path, process, log, timeout)
        yield Server(url, model, process)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=20)
    # Children that outlive their parent would slow the next server under test.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
