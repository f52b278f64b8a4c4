"""The whole product under the real Dagster daemon: HAProxy, replicas, sensors and jobs."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from benchmarks.drills.world import World, make_world, wait_for
from benchmarks.servers import free_port
from lifecycle.fleet.processes import ProcessTable
from lifecycle.fleet.proxy.base import ProxyServer
from lifecycle.fleet.proxy.process import SERVICE
from lifecycle.fleet.proxy.runtime import HAProxyClient
from lifecycle.stack.services import ControlPlane
from lifecycle.stack.settings import REPOSITORY, StackSettings
from registry.audit import Event
from registry.fleet import DesiredReplica

_UP_SECONDS = 400.0


@dataclass(frozen=True)
class Stack:
    """What ``make up REPLICAS=N`` has started.

    Attributes:
        world: its state folder.
        port: of HAProxy.
        dagster_port: of the UI.
        replicas: how many.
        env: settings of every process.
    """

    world: World
    port: int
    dagster_port: int
    replicas: int
    env: dict[str, str]

    @property
    def url(self) -> str:
        """Where clients send their requests."""
        return f"http://127.0.0.1:{self.port}"

    def command(self, *arguments: str) -> None:
        """Run ``ironworks …`` on this state folder.

        Raises:
            RuntimeError: it failed; the message holds the end of what it printed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "ironworks", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
            timeout=_UP_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            tail = f"{done.stdout}\n{done.stderr}"[-3000:]
            raise RuntimeError(f"ironworks {' '.join(arguments)} failed:\n{tail}")

    def desired(self) -> list[DesiredReplica]:
        """The replicas that should run."""
        with self.world.registry() as registry:
            return registry.fleet.desired()

    def servers(self) -> dict[str, ProxyServer]:
        """How HAProxy sees them."""
        return dict(HAProxyClient(self.world.paths.socket(SERVICE)).servers())

    def in_rotation(self, service: str) -> bool:
        """Whether new requests reach a replica."""
        if self.replicas == 1:
            return self.world.ready(self.port)
        server = self.servers().get(service)
        return server is not None and server.in_rotation

    def await_rotation(self, services: Sequence[str], seconds: float = 180.0) -> float:
        """Wait until all of them take requests; when that was (monotonic seconds)."""
        wait_for(
            f"rotation with {', '.join(services)}",
            lambda: all(self.in_rotation(service) for service in services),
            seconds,
        )
        return time.monotonic()

    def pid(self, name: str) -> int:
        """Of one of the stack's processes.

        Raises:
            LookupError: it does not run.
        """
        record = ProcessTable(self.world.paths.run).find(name)
        if record is None:
            raise LookupError(f"{name} does not run")
        return record.pid

    def kill(self, name: str) -> float:
        """``kill -9`` one process; when that was (monotonic seconds)."""
        pid = self.pid(name)
        now = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        # It is gone only once the kernel has torn it down, which its memory can delay.
        wait_for(f"end of {name}", lambda: ProcessTable(self.world.paths.run).find(name) is None)
        return now

    def restart_daemon(self) -> None:
        """Start Dagster's daemon again after it was killed."""
        settings = StackSettings(
            self.world.paths, self.port, self.dagster_port, replicas=self.replicas
        )
        ControlPlane(settings).start()

    def launch(self, job: str) -> None:
        """Start a job by hand, as a person does in the UI."""
        workspace = self.world.paths.dagster / "workspace.yaml"
        subprocess.run(
            [sys.executable, "-m", "dagster", "job", "launch", "-w", str(workspace), "-j", job],
            env={**os.environ, **self.env, "DAGSTER_HOME": str(self.world.paths.dagster)},
            check=True,
            capture_output=True,
            timeout=180,
        )

    def runs(self, job: str, *, after: float = 0.0) -> list[dg.RunRecord]:
        """Runs of a job that were made after a moment (seconds since 1970), newest first."""
        with dg.DagsterInstance.from_config(str(self.world.paths.dagster)) as instance:
            records = instance.get_run_records(dg.RunsFilter(job_name=job))
        return [r for r in records if r.create_timestamp.timestamp() >= after]

    def events(self, prefix: str, after: int) -> list[Event]:
        """Audit events after a row whose kind begins so."""
        with self.world.registry() as registry:
            events = registry.audit.events(after=after)
            return [event for event in events if event.kind.startswith(prefix)]


@contextmanager
def running_stack(
    folder: Path,
    source: Path,
    *,
    replicas: int = 2,
    env: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[Stack]:
    """Bring the product up with ``v1`` in production; take it down at the end.

    Args:
        folder: an empty one; must be short enough for Unix sockets, or they go to /tmp.
        source: the checkpoint to serve.
        replicas: how many; behind HAProxy if more than one.
        env: further variables of every process.
        settings: of the replicas and sensors by name, such as ``max_slots=8``.
    """
    world = make_world(folder, source)
    port = _free_ports(replicas + 1)
    variables: dict[str, object] = {
        "state": world.paths.root,
        "port": port,
        "dagster_port": free_port(),
        "replicas": replicas,
        "device": "cpu",
        "threads": 1,
        "max_slots": 16,
        **settings,
    }
    own = {f"IRONWORKS_{name.upper()}": str(value) for name, value in variables.items()}
    stack = Stack(world, port, int(own["IRONWORKS_DAGSTER_PORT"]), replicas, {**own, **(env or {})})
    try:
        stack.command("up")
        stack.await_rotation([replica.service for replica in stack.desired()])
        yield stack
    finally:
        stack.command("down")


def _free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that nothing listens on.

    Below the kernel's ephemeral range (from 32768 up, ip(7)): from that any connection may
    take the port of a replica that was just killed, and it could not be started again.
    """
    for _ in range(50):
        first = random.randrange(20_000, 32_000)
        if all(_is_free(first + n) for n in range(count)):
            return first
    raise RuntimeError("no free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
