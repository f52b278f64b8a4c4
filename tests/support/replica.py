"""A replica as a process of its own, ended by pid."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.client import ReplicaClient, admin_socket_path
from tests.support.ports import free_port

START_SECONDS = 120.0


@dataclass
class Replica:
    """A running ``serve`` process and how to reach it."""

    process: subprocess.Popen[bytes]
    url: str
    service: str
    state: Path
    log: Path

    def client(self) -> ReplicaClient:
        return ReplicaClient(self.url, admin_socket_path(self.state, self.service))

    def engine_pid(self) -> int:
        with self.client() as client:
            return int(client.status()["models"][0]["engine_pid"])

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while not client.readyz():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"not ready:\n{self.log.read_text()[-4000:]}")
                time.sleep(0.05)


@contextmanager
def running_replica(state: Path, model: str, **settings: object) -> Iterator[Replica]:
    """Start a replica, wait until it is ready, and kill what is left of it at the end.

    Args:
        state: state folder with a registry whose alias names a version of ``model``.
        model: registry name.
        settings: further settings by name, e.g. ``drain_seconds=5``.
    """
    port = free_port()
    service = f"replica-{port}"
    log = state / f"{service}.log"
    variables = {
        "state": state,
        "model": model,
        "port": port,
        "device": "cpu",
        "threads": 1,
        "max_slots": 8,
        **settings,
    }
    environment = os.environ | {
        f"IRONWORKS_{name.upper()}": str(value) for name, value in variables.items()
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ironworks", "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    replica = Replica(process, f"http://127.0.0.1:{port}", service, state, log)
    try:
        replica.wait_ready()
        yield replica
    finally:
        process.kill()
        process.wait()
