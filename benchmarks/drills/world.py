"""A state folder with registered versions, and replicas on it, without the control plane."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.servers import free_port
from lifecycle.fleet.supervisors.base import ReplicaSpec
from lifecycle.fleet.supervisors.local import LocalSupervisor
from lifecycle.stack.settings import StackSettings
from registry.paths import StatePaths
from registry.store import Registry, Version
from serving.client import ReplicaClient, admin_socket_path

MODEL = StackSettings.model
ACTOR = "drill"

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 120.0) -> T:
    """Look until there is something.

    Raises:
        TimeoutError: there was nothing in time; names what was waited for.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"no {what} within {seconds:.0f} s")


@dataclass(frozen=True)
class World:
    """One state folder.

    Attributes:
        paths: where.
        source: the checkpoint that versions are made of.
    """

    paths: StatePaths
    source: Path

    def registry(self) -> Registry:
        """Open the registry."""
        return Registry.open(self.paths.registry)

    def add(self, version: str) -> Version:
        """Register another version: the same weights, and a file that names it."""
        directory = self.paths.root / "made" / version
        shutil.copytree(self.source, directory, copy_function=_link)
        (directory / "README.md").write_text(f"version {version}\n")
        with self.registry() as registry:
            manifest = registry.build_manifest(directory)
            registry.ingest(directory, manifest)
            return registry.register(
                manifest, model=MODEL, version=version, actor=ACTOR, source=str(directory)
            )

    def promote(self, version: str) -> None:
        """Move production, with every gate of the policy on record as passed."""
        name = f"{MODEL}@{version}"
        with self.registry() as registry:
            for gate in registry.policy.rule("production").gates:
                registry.record_gate(
                    name, gate=gate, outcome="pass", numbers={}, actor=ACTOR, run_id="drill"
                )
            registry.promote(name, alias="production", actor=ACTOR, reason="a drill")

    def kinds_after(self, seq: int) -> list[str]:
        """Kinds of the audit events after a row."""
        with self.registry() as registry:
            return [event.kind for event in registry.audit.events(after=seq)]

    def last_seq(self) -> int:
        """Number of the newest audit event."""
        with self.registry() as registry:
            return registry.audit.head().seq

    def client(self, port: int, timeout: float = 60.0) -> ReplicaClient:
        """Talk to the replica on a port."""
        socket = admin_socket_path(self.paths.root, f"replica-{port}")
        return ReplicaClient(f"http://127.0.0.1:{port}", socket, timeout)

    def log(self, port: int) -> Path:
        """The log of the replica on a port."""
        return self.paths.log / f"replica-{port}.log"

    def ready(self, port: int) -> bool:
        """Whether that replica takes requests."""
        with self.client(port, timeout=2.0) as client:
            return client.readyz()

    def engine_pid(self, port: int) -> int:
        """Process of its engine."""
        with self.client(port) as client:
            return int(client.status()["models"][0]["engine_pid"])

    def load_seconds(self, port: int) -> dict[str, float]:
        """How long the phases of its engine's load took."""
        with self.client(port) as client:
            phases: dict[str, float] = client.status()["models"][0]["load_seconds"]
        return {name: round(seconds, 2) for name, seconds in phases.items()}

    @contextmanager
    def replica(self, **settings: object) -> Iterator[int]:
        """Start a replica of production, yield its port once it is ready, stop it."""
        port = free_port()
        variables = {"device": "cpu", "threads": 1, "max_slots": 8, **settings}
        env = {f"IRONWORKS_{name.upper()}": str(value) for name, value in variables.items()}
        supervisor = LocalSupervisor(self.paths)
        service = f"replica-{port}"
        supervisor.start(ReplicaSpec(service=service, port=port, model=MODEL, env=env))
        try:

            def up() -> bool:
                if not supervisor.status(service).running:
                    raise RuntimeError("\n".join(supervisor.logs(service, 10)))
                return self.ready(port)

            wait_for("ready replica", up)
            yield port
        finally:
            supervisor.stop(service, grace_seconds=10)


def make_world(folder: Path, source: Path) -> World:
    """A fresh state folder below ``folder`` with version ``v1`` in production."""
    world = World(StatePaths(folder / "state").create(), source)
    world.add("v1")
    world.promote("v1")
    return world


def _link(source: str, target: str) -> None:
    """Weights of a second version need no second copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
